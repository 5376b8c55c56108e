package cloud

// ConsoleLog lets the tests fill a console log.
type ConsoleLog struct{ consoleLog }

// NewConsoleLog gives the console log at path.
func NewConsoleLog(path string) *ConsoleLog { return &ConsoleLog{consoleLog{path: path}} }

// Close closes it.
func (l *ConsoleLog) Close() { l.close() }

// Final is final.
var Final = final
