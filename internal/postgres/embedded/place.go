package embedded

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
)

// account is the user that postgres runs as when this process is root, which postgres refuses to be. nil: ourselves.
type account struct {
	name     string
	uid, gid uint32
}

// unprivileged picks the account: the owner of the data when there is some, so that a user postgres which a package
// brings later does not lock us out of the data of nobody.
func unprivileged(data ...string) (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	for _, dir := range data {
		if info, err := os.Stat(dir); err == nil {
			owner, ok := info.Sys().(*syscall.Stat_t)
			if !ok || owner.Uid == 0 {
				return nil, fmt.Errorf("%s belongs to root, as whom PostgreSQL refuses to run: give it to user postgres", dir)
			}
			return &account{name: userName(owner.Uid), uid: owner.Uid, gid: owner.Gid}, nil
		}
	}
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, uidErr := strconv.ParseUint(u.Uid, 10, 32)
		gid, gidErr := strconv.ParseUint(u.Gid, 10, 32)
		if err := errors.Join(uidErr, gidErr); err != nil {
			return nil, fmt.Errorf("reading user %s: %w", name, err)
		}
		return &account{name: name, uid: uint32(uid), gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL refuses to run as root, and neither user postgres nor user nobody exists here")
}

func userName(uid uint32) string {
	id := strconv.FormatUint(uint64(uid), 10)
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return id
}

// mkdir makes a directory that only the account, or we ourselves, may enter.
func (a *account) mkdir(path string) error {
	if err := os.Mkdir(path, 0o700); err != nil {
		return err
	}
	if a == nil {
		return nil
	}
	return os.Chown(path, int(a.uid), int(a.gid))
}

// paths are the places of one server.
type paths struct {
	lock              string // in the state directory, whoever else has to move
	data              string
	socket            string // a directory
	socketIsTemporary bool
	log               string
	packages          string // where programs are unpacked that the machine does not have
}

// socketLimit is what the kernel takes for a Unix socket's path, without the file name that postgres appends.
const socketLimit = 107 - len("/"+socketFile)

const socketFile = ".s.PGSQL.5432"

// clearSocket removes the socket's directory with what postgres leaves in it, and nothing else: a directory of that
// name that is somebody's own makes it fail.
func (p paths) clearSocket() error {
	for _, path := range []string{
		filepath.Join(p.socket, socketFile), filepath.Join(p.socket, socketFile+".lock"), p.socket,
	} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("clearing the socket's directory: %w", err)
		}
	}
	return nil
}

// elsewhere holds the data of root's servers whose account may not enter the state directory.
const elsewhere = "/var/lib/compute-postgres"

// place decides where things lie, and as whom postgres runs, and makes the directories.
func place(stateDir string, log *slog.Logger) (paths, *account, error) {
	if stateDir == "" {
		return paths{}, nil, errors.New("embedded PostgreSQL needs a state directory")
	}
	state, err := filepath.Abs(stateDir)
	if err != nil {
		return paths{}, nil, fmt.Errorf("finding the state directory: %w", err)
	}
	if err := os.MkdirAll(state, 0o755); err != nil {
		return paths{}, nil, fmt.Errorf("making the state directory: %w", err)
	}
	if state, err = filepath.EvalSymlinks(state); err != nil {
		return paths{}, nil, fmt.Errorf("finding the state directory: %w", err)
	}
	moved := filepath.Join(elsewhere, key(state))
	account, err := unprivileged(dataIn(state), dataIn(moved))
	if err != nil {
		return paths{}, nil, err
	}
	home, err := home(state, moved, account, log)
	if err != nil {
		return paths{}, nil, err
	}
	p := paths{
		lock:     filepath.Join(state, "pg.lock"),
		data:     dataIn(home),
		socket:   filepath.Join(home, "pg.run"),
		log:      filepath.Join(home, "pg.log"),
		packages: filepath.Join(home, "pg.packages"),
	}
	if len(p.socket) > socketLimit {
		p.socket, p.socketIsTemporary = filepath.Join(os.TempDir(), "compute-pg-"+key(state)), true
	}
	if len(p.socket) > socketLimit {
		return paths{}, nil, fmt.Errorf("%s is too long a path for a Unix socket: "+
			"choose a shorter state directory, or set TMPDIR", p.socket)
	}
	return p, account, nil
}

func dataIn(dir string) string { return filepath.Join(dir, "pg") }

// home is state itself, or moved when the account may not enter state. Data that is in state already is never
// left behind.
func home(state, moved string, account *account, log *slog.Logger) (string, error) {
	blocked := account.blockedBy(state)
	if blocked == "" {
		return state, nil
	}
	if _, err := os.Stat(dataIn(state)); err == nil {
		return "", fmt.Errorf("user %s, as whom PostgreSQL runs, may not enter %s and so not reach its data in %s: "+
			"allow it (chmod o+x %[2]s), or move the state directory", account.name, blocked, state)
	}
	for _, dir := range []string{elsewhere, moved} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return "", fmt.Errorf("user %s, as whom PostgreSQL runs, may not enter %s: %w", account.name, blocked, err)
		}
		if err := os.Chmod(dir, 0o755); err != nil { // whatever the umask is
			return "", err
		}
	}
	if blocked := account.blockedBy(moved); blocked != "" {
		return "", fmt.Errorf("user %s, as whom PostgreSQL runs, may neither enter %s nor %s", account.name, state, blocked)
	}
	log.Warn("the user of embedded PostgreSQL may not enter the state directory; its data lies elsewhere",
		"user", account.name, "blocked", blocked, "state", state, "data", moved)
	return moved, nil
}

// blockedBy is the first directory on the way to path, and path itself, that the account may not enter; "" when there
// is none.
func (a *account) blockedBy(path string) string {
	if a == nil {
		return ""
	}
	if path != "/" {
		if blocked := a.blockedBy(filepath.Dir(path)); blocked != "" {
			return blocked
		}
	}
	info, err := os.Stat(path)
	if err != nil {
		return path
	}
	bit := os.FileMode(0o001)
	if stat, ok := info.Sys().(*syscall.Stat_t); ok && stat.Uid == a.uid {
		bit = 0o100
	} else if ok && stat.Gid == a.gid {
		bit = 0o010
	}
	if info.Mode()&bit == 0 {
		return path
	}
	return ""
}

func key(path string) string {
	sum := sha256.Sum256([]byte(path))
	return hex.EncodeToString(sum[:6])
}
