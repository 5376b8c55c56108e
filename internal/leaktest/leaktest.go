// Package leaktest wants the tests of a package to leave no goroutine behind.
package leaktest

import (
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines may take to end, on a machine that is busy. goleak alone gives them less than half a second.
const patience = time.Minute

// Main runs the tests, and fails when a goroutine is left that is not ignored.
func Main(m goleak.TestingM, ignore ...goleak.Option) {
	goleak.VerifyTestMain(patient{m, ignore}, ignore...)
}

type patient struct {
	tests  goleak.TestingM
	ignore []goleak.Option
}

// Run runs the tests and waits until what they have started has ended.
func (p patient) Run() (code int) {
	code = p.tests.Run()
	for deadline := time.Now().Add(patience); code == 0 && goleak.Find(p.ignore...) != nil && time.Now().Before(deadline); {
		continue // Find has slept
	}
	return code
}
