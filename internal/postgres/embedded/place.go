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

func unprivileged() (*account, error) {
	if os.Geteuid() != 0 {
		return nil, nil
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

// mkdir makes a directory that only the account (or we ourselves) may enter. One that exists must be like that already.
func (a *account) mkdir(path string) error {
	owner := uint32(os.Geteuid())
	if a != nil {
		owner = a.uid
	}
	if err := os.Mkdir(path, 0o700); err == nil {
		if a == nil {
			return nil
		}
		return os.Chown(path, int(a.uid), int(a.gid))
	} else if !errors.Is(err, os.ErrExist) {
		return err
	}
	info, err := os.Lstat(path)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || !info.IsDir() || info.Mode().Perm() != 0o700 || stat.Uid != owner {
		return fmt.Errorf("%s must be a directory with mode 0700 that belongs to uid %d: move it away", path, owner)
	}
	return nil
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
const socketLimit = 107 - len("/.s.PGSQL.5432")

// place decides where things lie and makes the directories.
func place(stateDir string, account *account, log *slog.Logger) (paths, error) {
	if stateDir == "" {
		return paths{}, errors.New("embedded PostgreSQL needs a state directory")
	}
	state, err := filepath.Abs(stateDir)
	if err != nil {
		return paths{}, fmt.Errorf("finding the state directory: %w", err)
	}
	if err := os.MkdirAll(state, 0o755); err != nil {
		return paths{}, fmt.Errorf("making the state directory: %w", err)
	}
	if state, err = filepath.EvalSymlinks(state); err != nil {
		return paths{}, fmt.Errorf("finding the state directory: %w", err)
	}
	home := state
	if blocked := account.blockedBy(state); blocked != "" {
		home = filepath.Join("/var/lib/compute-postgres", key(state))
		if err := os.MkdirAll(home, 0o755); err != nil {
			return paths{}, fmt.Errorf("user %s may not enter %s, so PostgreSQL cannot live in %s: %w", account.name, blocked, state, err)
		}
		log.Warn("the user of embedded PostgreSQL may not enter the state directory; its data lies elsewhere",
			"user", account.name, "blocked", blocked, "state", state, "data", home)
	}
	p := paths{
		lock:     filepath.Join(state, "lock"),
		data:     filepath.Join(home, "pg"),
		socket:   filepath.Join(home, "run"),
		log:      filepath.Join(home, "postgres.log"),
		packages: filepath.Join(home, "packages"),
	}
	if len(p.socket) > socketLimit {
		p.socket, p.socketIsTemporary = filepath.Join(os.TempDir(), "compute-pg-"+key(state)), true
	}
	if err := account.mkdir(p.socket); err != nil {
		return paths{}, fmt.Errorf("making the socket's directory: %w", err)
	}
	return p, nil
}

// blockedBy is the first directory on the way to path, and path itself, that the account may not enter; "" when there is none.
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
