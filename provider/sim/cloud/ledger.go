package cloud

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"time"
)

// The kinds of ledger entries.
const (
	EntryCloud     = "cloud"     // the first line: this cloud's own id
	EntryOrder     = "order"     // a machine was sold
	EntryRelease   = "release"   // a machine was given back
	EntryInstall   = "install"   // an install began
	EntryInstalled = "installed" // an install ended, or was removed
	EntryFault     = "fault"     // a scripted fault was applied to a request
)

// Entry is one line of the ledger. It is what a judge reads, and all that the cloud knows after a restart.
type Entry struct {
	Time        time.Time `json:"time"`
	Kind        string    `json:"kind"`
	RequestID   string    `json:"requestId,omitempty"`
	CloudID     string    `json:"cloudId,omitempty"`
	Project     string    `json:"project,omitempty"` // SHA-256 of the API token, hex
	MachineID   string    `json:"machineId,omitempty"`
	ClientToken string    `json:"clientToken,omitempty"`
	Name        string    `json:"name,omitempty"`
	OfferID     string    `json:"offerId,omitempty"`
	Order       *order    `json:"order,omitempty"`
	Install     *Install  `json:"install,omitempty"`
	Exec        []string  `json:"exec,omitempty"`
	Fault       string    `json:"fault,omitempty"`
	Method      string    `json:"method,omitempty"`
	Path        string    `json:"path,omitempty"`
}

const ledgerFile = "ledger.jsonl"

// ReadLedger gives the whole lines of the ledger under dir, also while a cloud is writing it. A last line that is torn (the
// writer died in it, or is in it now) is left out; a broken line before it is an error.
func ReadLedger(dir string) ([]Entry, error) {
	entries, _, err := ReadLedgerFrom(dir, 0)
	return entries, err
}

// ReadLedgerFrom is ReadLedger for who has read so much of it, and says how much that is now.
func ReadLedgerFrom(dir string, read int64) (entries []Entry, readNow int64, err error) {
	file, err := os.Open(filepath.Join(dir, ledgerFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil, read, nil
	}
	if err != nil {
		return nil, read, err
	}
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.NewSectionReader(file, read, math.MaxInt64-read))
	if err != nil {
		return nil, read, err
	}
	entries, size, err := parseLedger(data)
	return entries, read + size, err
}

// parseLedger also gives the length of the whole lines.
func parseLedger(data []byte) (entries []Entry, size int64, err error) {
	for {
		line, rest, whole := bytes.Cut(data[size:], []byte("\n"))
		if !whole {
			return entries, size, nil
		}
		var e Entry
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, 0, fmt.Errorf("ledger line %d: %w", len(entries)+1, err)
		}
		entries = append(entries, e)
		size = int64(len(data) - len(rest))
	}
}

// ledger is the append-only file. An entry counts from the moment that append returned.
type ledger struct {
	file *os.File
	size int64 // end of the last line known to be whole and on disk
}

func openLedger(dir string) (*ledger, []Entry, error) {
	file, err := os.OpenFile(filepath.Join(dir, ledgerFile), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	data, err := io.ReadAll(file)
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	entries, size, err := parseLedger(data)
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	if err := file.Truncate(size); err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return &ledger{file: file, size: size}, entries, nil
}

func (l *ledger) append(e Entry) error {
	line, err := json.Marshal(e)
	if err != nil {
		return err
	}
	line = append(line, '\n')
	_, err = l.file.WriteAt(line, l.size)
	if err == nil {
		err = l.file.Sync()
	}
	if err != nil {
		// Nothing of a line that nobody was told about may stay in front of the next one.
		return fmt.Errorf("writing the ledger: %w", errors.Join(err, l.file.Truncate(l.size)))
	}
	l.size += int64(len(line))
	return nil
}

func (l *ledger) close() error { return l.file.Close() }
