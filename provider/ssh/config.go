package ssh

import (
	"encoding/json"
	"net"
	"strconv"
	"strings"
	"sync/atomic"

	"better/compute/model"
	"better/compute/provider"
)

// config is what config.schema.json describes.
type config struct {
	User       string     `json:"user"`
	PrivateKey string     `json:"privateKey"`
	Machines   []*machine `json:"machines"`
}

type machine struct {
	ID              string            `json:"id"`
	Address         string            `json:"address"`
	Port            int               `json:"port"`
	User            string            `json:"user"`
	Sudo            bool              `json:"sudo"`
	HostFingerprint string            `json:"hostFingerprint"`
	PrivateKey      string            `json:"privateKey"`
	Kind            model.MachineKind `json:"kind"`
	Region          string            `json:"region"`
	Labels          map[string]string `json:"labels"`
	Hardware        hardware          `json:"hardware"`
	Price           *model.Price      `json:"price"`

	// keyFamily is the index in keyFamilies that the pinned host key was last found in.
	keyFamily atomic.Int32
}

type hardware struct {
	Arch      *string       `json:"arch"`
	VCPU      *int          `json:"vcpu"`
	MemoryGiB *float64      `json:"memoryGiB"`
	Disks     []*model.Disk `json:"disks"`
	GPU       *model.GPU    `json:"gpu"`
}

// parseConfig reads a config that has passed the schema, and fills the defaults in.
func parseConfig(text json.RawMessage) ([]*machine, error) {
	var c config
	if err := json.Unmarshal(text, &c); err != nil {
		return nil, provider.Errorf(provider.InvalidConfig, "The config is not an inventory of machines.").Because(err)
	}
	for _, m := range c.Machines {
		if m == nil {
			return nil, provider.Errorf(provider.InvalidConfig, "The config has a machine that is null.")
		}
		m.fill(c)
	}
	return c.Machines, nil
}

func (m *machine) fill(c config) {
	m.User = firstOf(m.User, c.User, "root")
	m.PrivateKey = firstOf(m.PrivateKey, c.PrivateKey)
	m.Region = firstOf(m.Region, "default")
	if m.Port == 0 {
		m.Port = 22
	}
	for _, d := range m.Hardware.Disks {
		d.Count = max(d.Count, 1)
		d.Media = firstOf(d.Media, "unknown")
	}
	if gpu := m.Hardware.GPU; gpu != nil {
		gpu.Count = max(gpu.Count, 1)
		gpu.Model, gpu.Vendor = provider.NormalizeGPU(gpu.Model)
	}
}

func firstOf(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}

func (m *machine) region() string { return strings.ToLower(m.Region) }

func (m *machine) hostPort() string { return net.JoinHostPort(m.Address, strconv.Itoa(m.Port)) }
