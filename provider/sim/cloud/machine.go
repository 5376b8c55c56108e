package cloud

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Machine is a machine as the API shows it.
type Machine struct {
	ID          string            `json:"id"`
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels"`
	OfferID     string            `json:"offerId"`
	Category    string            `json:"category"`
	Location    string            `json:"location"`
	Status      string            `json:"status"`
	Serial      string            `json:"serial"`
	OSMachineID string            `json:"osMachineId"`
	Addresses   []string          `json:"addresses"`
	CreatedAt   time.Time         `json:"createdAt"`
}

// The states of a machine. One that was released is gone: the API answers 404.
const (
	StatusPending    = "pending"
	StatusReady      = "ready"
	StatusInstalling = "installing"
	StatusRunning    = "running"
)

const machinesDir = "machines"

// order is what a machine was sold as, with what a fault made of it. Status is left out of it, since it moves.
type order struct {
	Machine  Machine           `json:"machine"`
	Labels   map[string]string `json:"labels"`  // as asked for; the machine's own differ after lost_label
	ReadyAt  time.Time         `json:"readyAt"` // zero: never
	ListedAt time.Time         `json:"listedAt"`
}

type machine struct {
	Machine
	order       order
	project     string
	clientToken string
	released    bool

	installs []*Install // the last one counts
	exec     []string
	agent    *agent
	power    context.Context // ends when the machine is released or the cloud closes
	cut      context.CancelFunc
}

// project is what one API token can see: its machines, oldest first.
type project struct {
	hash     string
	machines []*machine
}

func (p *project) find(match func(*machine) bool) *machine {
	if i := slices.IndexFunc(p.machines, match); i >= 0 {
		return p.machines[i]
	}
	return nil
}

func (p *project) machine(id string) *machine {
	return p.find(func(m *machine) bool { return m.ID == id && !m.released })
}

// projectOf gives the project of a token's hash, with its first machines when it is seen for the first time. Those derive
// from the cloud's id and the hash, so that looking at a project needs no line in the ledger.
func (c *Cloud) projectOf(hash string) *project {
	if p := c.projects[hash]; p != nil {
		return p
	}
	p := &project{hash: hash}
	c.projects[hash] = p
	since := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for i, category := range []string{"vps", "bare_metal"} {
		index := slices.IndexFunc(c.options.Catalogue, func(o Offer) bool { return o.Category == category })
		if index < 0 {
			continue
		}
		seed := sha256.Sum256(fmt.Appendf(nil, "%s/%s/%d", c.id, hash, i))
		name := "existing-" + strings.ReplaceAll(category, "bare_", "")
		m := newMachine(seed[:], c.options.Catalogue[index], name, nil, since)
		c.add(p, &machine{Machine: m, order: order{Machine: m, ReadyAt: since, ListedAt: since}})
	}
	return p
}

func newMachine(seed []byte, offer Offer, name string, labels map[string]string, now time.Time) Machine {
	sum := sha256.Sum256(seed)
	text := hex.EncodeToString(sum[:])
	if labels == nil {
		labels = map[string]string{}
	}
	return Machine{
		ID: "m-" + text[:16], Name: name, Labels: labels, OfferID: offer.ID, Category: offer.Category, Location: offer.Location,
		Serial: "SIM" + strings.ToUpper(text[16:26]), OSMachineID: text[32:],
		Addresses: []string{fmt.Sprintf("198.18.%d.%d", sum[0], sum[1])}, CreatedAt: now.UTC(),
	}
}

func (c *Cloud) add(p *project, m *machine) {
	m.project = p.hash
	m.power, m.cut = context.WithCancel(c.life)
	p.machines = append(p.machines, m)
}

// view is the machine as it is now.
func (c *Cloud) view(m *machine) Machine {
	v := m.Machine
	v.Status = StatusReady
	switch last := m.lastInstall(); {
	case m.order.ReadyAt.IsZero() || c.options.Now().Before(m.order.ReadyAt):
		v.Status = StatusPending
	case last == nil:
	case last.State == InstallRunning:
		v.Status = StatusInstalling
	case last.State == InstallSucceeded:
		v.Status = StatusRunning
	}
	return v
}

// replay applies one line of the ledger to the state.
func (c *Cloud) replay(e Entry) error {
	if e.Kind == EntryCloud || e.Kind == EntryFault {
		return nil
	}
	p := c.projectOf(e.Project)
	if e.Kind == EntryOrder {
		if e.Order == nil {
			return fmt.Errorf("the order of %s has no machine", e.MachineID)
		}
		c.add(p, &machine{Machine: e.Order.Machine, order: *e.Order, clientToken: e.ClientToken})
		return nil
	}
	m := p.machine(e.MachineID)
	if m == nil {
		return fmt.Errorf("%s of %s, which is not there", e.Kind, e.MachineID)
	}
	switch e.Kind {
	case EntryRelease:
		m.released = true
		m.cut()
	case EntryInstall:
		m.begin(e.Install, e.Exec)
	case EntryInstalled:
		if len(m.installs) == 0 {
			return fmt.Errorf("the end of an install of %s that never began", m.ID)
		}
		m.installs[len(m.installs)-1] = e.Install
	default:
		return fmt.Errorf("unknown kind %q", e.Kind)
	}
	return nil
}

// orderRequest is the body of POST /v1/machines.
type orderRequest struct {
	OfferID     string            `json:"offerId"`
	Name        string            `json:"name"`
	Labels      map[string]string `json:"labels"`
	ClientToken string            `json:"clientToken"`
}

var (
	namePattern  = regexp.MustCompile(`\A[a-z0-9][a-z0-9-]{0,62}\z`)
	labelPattern = regexp.MustCompile(`\A[A-Za-z0-9._:-]{1,63}\z`)
	tokenPattern = regexp.MustCompile(`\A[A-Za-z0-9._:-]{0,64}\z`)
)

func (r orderRequest) check(way string) error {
	if r.ClientToken != "" && way != ByToken {
		return invalid("there are no client tokens here")
	}
	if len(r.Labels) > 0 && way == ByNone {
		return invalid("there are no labels here")
	}
	if !namePattern.MatchString(r.Name) {
		return invalid("name must match %s", namePattern)
	}
	if !tokenPattern.MatchString(r.ClientToken) {
		return invalid("clientToken must match %s", tokenPattern)
	}
	if len(r.Labels) > 16 {
		return invalid("at most 16 labels")
	}
	for k, v := range r.Labels {
		if !labelPattern.MatchString(k) || !labelPattern.MatchString(v) {
			return invalid("label keys and values must match %s", labelPattern)
		}
	}
	return nil
}

// createMachine sells one machine. With a client token it sells it once, however often it is called, and where names are unique one at a time.
func (c *Cloud) createMachine(call *call) (int, any, error) {
	var r orderRequest
	if err := call.decode(&r); err != nil {
		return 0, nil, err
	}
	if err := r.check(call.way); err != nil {
		return 0, nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.projectOf(call.project)
	if sold, err := p.replayed(r); sold != nil || err != nil {
		return http.StatusCreated, c.viewOrNil(sold), err
	}
	if err := p.named(call.way, r.Name); err != nil {
		return 0, nil, err
	}
	offer, err := c.sellable(p, r)
	if err != nil {
		return 0, nil, err
	}
	m := c.sell(offer, r, call)
	m.clientToken = r.ClientToken
	if err := c.record(Entry{
		Kind: EntryOrder, RequestID: call.requestID, Project: p.hash, MachineID: m.ID, ClientToken: r.ClientToken, Name: r.Name,
		OfferID: r.OfferID, Order: &m.order,
	}); err != nil {
		return 0, nil, err
	}
	c.add(p, m)
	return http.StatusCreated, c.view(m), nil
}

// replayed finds the machine that was sold under the request's client token.
func (p *project) replayed(r orderRequest) (*machine, error) {
	if r.ClientToken == "" {
		return nil, nil
	}
	m := p.find(func(m *machine) bool { return m.clientToken == r.ClientToken })
	if m == nil {
		return nil, nil
	}
	if m.OfferID != r.OfferID || m.Name != r.Name || !maps.Equal(m.order.Labels, r.Labels) {
		return nil, refusal(http.StatusConflict, "client_token_mismatch", "the client token was used with other parameters")
	}
	if m.released {
		return nil, refusal(http.StatusConflict, "client_token_spent", "the machine of this client token was released")
	}
	return m, nil
}

func (c *Cloud) viewOrNil(m *machine) any {
	if m == nil {
		return nil
	}
	return c.view(m)
}

// named refuses a name that the project has a machine of, where names are unique.
func (p *project) named(way, name string) error {
	if way == ByLabel || way == ByNone || p.find(func(m *machine) bool { return m.Name == name && !m.released }) == nil {
		return nil
	}
	return refusal(http.StatusConflict, "uniqueness_error", "the project has a machine of this name")
}

// sellable finds the offer and everything that stands against selling it to p now.
func (c *Cloud) sellable(p *project, r orderRequest) (Offer, error) {
	i := slices.IndexFunc(c.options.Catalogue, func(o Offer) bool { return o.ID == r.OfferID })
	if i < 0 {
		return Offer{}, refusals[FaultOfferGone]
	}
	if c.options.Catalogue[i].Stock == "none" {
		return Offer{}, refusals[FaultOutOfStock]
	}
	owned := 0
	for _, m := range p.machines {
		if !m.released {
			owned++
		}
	}
	if owned >= c.options.Quota {
		return Offer{}, refusals[FaultQuota]
	}
	return c.options.Catalogue[i], nil
}

// sell makes the machine, spoilt by the fault of the order.
func (c *Cloud) sell(offer Offer, r orderRequest, call *call) *machine {
	now := c.options.Now().UTC()
	m := newMachine([]byte(rand.Text()), offer, r.Name, r.Labels, now)
	o := order{Machine: m, Labels: r.Labels, ReadyAt: now.Add(c.options.ReadyDelay), ListedAt: now}
	if call.way == ByLabel || call.way == ByNone {
		o.ListedAt = now.Add(c.options.ListLag)
	}
	switch f := call.fault; f.kind() {
	case FaultLateListing:
		o.ListedAt = o.ListedAt.Add(f.delay(2 * time.Second))
	case FaultLostLabel, FaultLostOrder:
		o.Machine.Labels = map[string]string{}
		if call.way == ByNone {
			o.Machine.Name = "machine-" + strings.TrimPrefix(m.ID, "m-")
		}
	case FaultNeverReady:
		o.ReadyAt = time.Time{}
	}
	return &machine{Machine: o.Machine, order: o}
}

func (c *Cloud) getMachine(call *call) (int, any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.projectOf(call.project).machine(call.r.PathValue("id"))
	if m == nil {
		return 0, nil, notFound("machine")
	}
	return http.StatusOK, c.view(m), nil
}

// releaseMachine gives a machine back and cuts its power. Its name is free again, its client token is not.
func (c *Cloud) releaseMachine(call *call) (int, any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	m := c.projectOf(call.project).machine(call.r.PathValue("id"))
	if m == nil {
		return 0, nil, notFound("machine")
	}
	if err := c.record(Entry{
		Kind: EntryRelease, RequestID: call.requestID, Project: m.project, MachineID: m.ID, ClientToken: m.clientToken,
		Name: m.Name, OfferID: m.OfferID,
	}); err != nil {
		return 0, nil, err
	}
	m.released = true
	m.cut()
	m.agent.stop()
	if err := os.RemoveAll(c.machineDir(m)); err != nil {
		return 0, nil, err
	}
	return http.StatusNoContent, nil, nil
}

func (c *Cloud) machineDir(m *machine) string { return filepath.Join(c.options.Dir, machinesDir, m.ID) }

// rootDir is what the machine takes for its file system.
func (c *Cloud) rootDir(m *machine) string { return filepath.Join(c.machineDir(m), "root") }
