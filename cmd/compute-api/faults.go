//go:build faults

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"better/compute/bootstrap"
)

// faultsVariable names the directory through which a torture test speaks to the servers that it runs. In it are
//
//	timing   the Timing of bootstraps as JSON, so that what takes minutes takes moments
//	arm      what is to happen next, a line for each: "<number> <kill|stop|record> <hit> <point>"
//	hits-N   a byte for each time that the point of arm number N was reached, in any of the processes
//	points   with record: a line for each point that was passed
//	stopped-N  the id of the process that stopped; killed-N of the one that was killed
const faultsVariable = "COMPUTE_FAULTS"

// rig makes moments of minutes, and the services end, or stop, their own process at the points that the test names.
func rig(d *bootstrap.Deps) {
	dir := os.Getenv(faultsVariable)
	if dir == "" {
		return
	}
	text, err := os.ReadFile(filepath.Join(dir, "timing"))
	if err == nil {
		err = json.Unmarshal(text, &d.Timing)
	}
	must(err)
	d.Fault = faultPoint()
}

// faultPoint is what to call at a fault point; nil when no test has named a directory.
func faultPoint() func(point string) {
	dir := os.Getenv(faultsVariable)
	if dir == "" {
		return nil
	}
	return func(point string) { reach(dir, point) }
}

func reach(dir, point string) {
	text, err := os.ReadFile(filepath.Join(dir, "arm"))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	must(err)
	for line := range strings.Lines(string(text)) {
		reachArmed(dir, line, point)
	}
}

func reachArmed(dir, line, point string) {
	var number, hit int64
	var action, at string
	_, err := fmt.Sscanf(line, "%d %s %d %s", &number, &action, &hit, &at)
	must(err)
	if action == "record" {
		appendTo(filepath.Join(dir, "points"), point+"\n")
		return
	}
	if at != point || appendTo(filepath.Join(dir, fmt.Sprint("hits-", number)), ".") != hit {
		return
	}
	if action == "stop" {
		must(os.WriteFile(filepath.Join(dir, fmt.Sprint("stopped-", number)), fmt.Append(nil, os.Getpid()), 0o600))
		must(syscall.Kill(os.Getpid(), syscall.SIGSTOP))
		return
	}
	must(os.WriteFile(filepath.Join(dir, fmt.Sprint("killed-", number)), fmt.Append(nil, os.Getpid()), 0o600))
	must(syscall.Kill(os.Getpid(), syscall.SIGKILL))
	select {} // nothing after the point runs
}

// appendTo writes at the end of a file that other processes write too, and tells where that end is now.
func appendTo(path, text string) int64 {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	must(err)
	_, err = f.WriteString(text)
	must(err)
	end, err := f.Seek(0, io.SeekCurrent)
	must(err)
	must(f.Close())
	return end
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}
