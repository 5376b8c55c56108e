package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/uptrace/bun"

	"better/compute/model"
	"better/compute/provider"
)

// machine is who the run's machine is.
type machine = provider.Identity

func (w *work) bootstrapper() (provider.Bootstrapper, error) {
	return bootstrapper(w.client, w.account)
}

func bootstrapper(c provider.Client, account *model.ProviderAccount) (provider.Bootstrapper, error) {
	b, ok := c.(provider.Bootstrapper)
	if !ok {
		return nil, fmt.Errorf("the client of %s is no Bootstrapper although its manifest says so", account.Provider)
	}
	return b, nil
}

// identifying reserves the machine, whichever account it is reached through, and then reads who it is. The reservation of a run of another
// tenant that has not read that yet keeps nobody from reading it first.
func (r *Reconciler) identifying(ctx context.Context, w *work) (outcome, error) {
	b, err := w.bootstrapper()
	if err != nil {
		return outcome{}, err
	}
	key, err := b.MachineKey(*w.MachineID)
	if err != nil {
		return r.failedCall(ctx, w, err)
	}
	got, err := r.reserve(ctx, w, key, "identifying the machine")
	if err == nil && !got {
		got, err = yields(ctx, r.DB.DB, key, w.TenantID, 0)
	}
	if err != nil {
		return outcome{}, err
	}
	if !got {
		return inUse(), nil
	}
	r.fault("identifying.reserved")
	seen, err := call(ctx, r.Timing.Call, func(ctx context.Context) (*provider.Identity, error) {
		return b.Identify(ctx, *w.MachineID)
	})
	r.fault("identifying.identified")
	if err != nil {
		return r.failedCall(ctx, w, err)
	}
	clean := cleanIdentity(*seen)
	if w.Machine != nil && differs(*w.Machine, clean) {
		return fail(model.IdentityMismatch, "The machine is not the one that was identified before.", nil), nil
	}
	got, err = r.prove(ctx, w, key, clean)
	if err != nil {
		return outcome{}, err
	}
	if !got {
		return inUse().with(fields{"machine": clean}), nil // which its cleanup has to spare
	}
	r.fault("identifying.proved")
	return advance(model.Preparing, fields{"machine": clean}), nil
}

func inUse() outcome {
	return fail(model.MachineInUse, "The machine is in another bootstrap, or is a host already.", nil)
}

// identityKeys are the machine's further keys, by what it says of itself: two accounts may know one machine by different names. Its system has
// an id or, where it has none, network cards. The serial number keeps copies of one system apart; where a machine has none, copies count as one
// machine, since one that is a host must not be taken for another. A serial number alone is no key: vendors count them up, so that anybody
// could claim another's.
func identityKeys(m machine) []string {
	systems := m.MACs
	if m.OSMachineID != "" && m.OSMachineID != "uninitialized" { // which systemd writes into an image that has none yet
		systems = []string{m.OSMachineID}
	}
	keys := make([]string, len(systems))
	for i, system := range slices.Sorted(slices.Values(systems)) { // two runs never wait in a circle
		keys[i] = "machine:" + m.Serial + "/" + system
	}
	return keys
}

var errInUse = errors.New("the machine is another's")

// prove makes the machine the run's own, by all its keys, now that the run has shown that it reaches it; false when it is another's.
func (r *Reconciler) prove(ctx context.Context, w *work, key string, m machine) (bool, error) {
	err := r.DB.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		if _, err := update(ctx, guarded(tx, w.run).Set("machine = ?", m)); err != nil {
			return err
		}
		for _, key := range append([]string{key}, identityKeys(m)...) {
			got, err := take(ctx, tx, key, w.run)
			if err != nil {
				return err
			}
			if !got {
				return errInUse
			}
		}
		return nil
	})
	if errors.Is(err, errInUse) {
		return false, nil
	}
	return err == nil, err
}

func (r *Reconciler) reserve(ctx context.Context, w *work, key, step string) (got bool, err error) {
	err = r.DB.RunInTx(ctx, func(ctx context.Context, tx bun.Tx) error {
		// A worker that lost its lease must not reserve for a run that may be over.
		if _, err := update(ctx, guarded(tx, w.run).Set("step = ?", step)); err != nil {
			return err
		}
		got, err = reserve(ctx, tx, key, w.ID)
		return err
	})
	return got, err
}

// same reports whether the machine's id names the machine that the run reserved: an account that was updated may know another one by it, which may be
// somebody's host. What has no key is left to the provider's answer.
func (r *Reconciler) same(ctx context.Context, w *work) (bool, error) {
	b, err := w.bootstrapper()
	if err != nil {
		return false, err
	}
	key, err := b.MachineKey(*w.MachineID)
	if err != nil {
		return true, nil //nolint:nilerr // such an id names no machine
	}
	return reservedBy(ctx, r.DB.DB, key, w.ID)
}

// differs reports whether two identities contradict each other. What one of them does not know proves nothing.
func differs(a, b machine) bool {
	contradict := func(x, y string) bool { return x != "" && y != "" && x != y }
	return contradict(a.Serial, b.Serial) || contradict(a.OSMachineID, b.OSMachineID) || contradict(a.SSHHostKey, b.SSHHostKey)
}

const maxFact = 256

// cleanIdentity makes safe to store what a machine says of itself.
func cleanIdentity(m machine) machine {
	for _, text := range []*string{&m.Serial, &m.OSMachineID, &m.SSHHostKey, &m.Arch} {
		*text = printable(*text, maxFact)
	}
	m.Addresses = slices.Clone(m.Addresses[:min(len(m.Addresses), maxFact)])
	for i, a := range m.Addresses {
		m.Addresses[i] = printable(a, maxFact)
	}
	m.MACs = slices.Clone(m.MACs[:min(len(m.MACs), maxFact)])
	for i, a := range m.MACs {
		m.MACs[i] = printable(a, maxFact)
	}
	m.Disks = slices.Clone(m.Disks[:min(len(m.Disks), maxFact)])
	for i, d := range m.Disks {
		c := *d
		c.Media = printable(c.Media, maxFact)
		m.Disks[i] = &c
	}
	m.GPUs = slices.Clone(m.GPUs[:min(len(m.GPUs), maxFact)])
	for i, g := range m.GPUs {
		c := *g
		c.Model, c.Vendor = printable(c.Model, maxFact), printable(c.Vendor, maxFact)
		m.GPUs[i] = &c
	}
	return m
}
