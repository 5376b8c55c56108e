package ssh_test

import (
	"maps"
	"testing"

	"better/compute/apitest/netns"
	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/providertest"
	"better/compute/provider/ssh"
)

func TestConformance(t *testing.T) {
	t.Parallel()
	hosts := netns.Hosts(t, 6)
	var keys string
	for _, h := range hosts[:2] {
		keys += h.Run("cat /etc/ssh/netns_authorized_keys")
	}
	for _, h := range hosts[2:] {
		h.Write("/etc/ssh/netns_authorized_keys", keys)
	}
	// Four machines that one can order, and one that is named.
	rack := func(h *netns.Host) *account {
		a := accountOn(h)
		for n, h := range hosts[2:] {
			a.machines = append(a.machines, box("stock-"+string(rune('a'+n)), n+1, map[string]any{
				"address": h.Address.String(), "hostFingerprint": h.Fingerprint,
			}))
		}
		return a
	}
	on := func(h *netns.Host, change func(*account, *providertest.Account)) providertest.Situation {
		return providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
			t.Helper()
			a := rack(h)
			s := &providertest.Account{Secret: a.key, MachineID: h.Name}
			if change != nil {
				change(a, s)
			}
			c := a.open(t)
			s.Client = c
			s.Sold = func(operation string) int {
				if m, _ := a.inventory.Claimed(t.Context(), operation); m != "" {
					return 1
				}
				return 0
			}
			if s.OfferID == "" {
				s.OfferID = offerOf(t, c, "stock-a")
			}
			s.Payload = func(generation int) provider.Payload { return payload(t, h, generation) }
			return s
		}}
	}
	never := func(reason string) providertest.Situation { return providertest.Situation{Reason: reason} }
	const (
		noAPI   = "the inventory is the config: there is no API that answers"
		noLogin = "the account has no login of its own: each machine judges the private key, when it is reached"
		noShop  = "nobody sells the machines"
	)
	plain := on(hosts[0], nil)
	fails := on(hosts[1], nil)
	providertest.Run(t, providertest.Config{
		Driver:     ssh.New(ssh.Options{}),
		Configs:    []string{string(rack(hosts[0]).config(t)), string(withEverything(rack(hosts[0])).config(t))},
		BadConfigs: []string{`{}`, `{"machines":[{}]}`, `{"machines":[],"privateKey":"-----BEGIN PRIVATE KEY-----"}`},
		Plain:      plain,
		ThreePages: never(noAPI), EmptyLastPage: never(noAPI), RepeatedPage: never(noAPI), ExtraFields: never(noAPI),
		MissingPrice: plain,
		UnknownGPU: on(hosts[0], func(a *account, _ *providertest.Account) {
			a.machines[1]["hardware"] = map[string]any{"gpu": map[string]any{"model": "Frobnicator 9"}}
		}),
		OddIDs:     never("the config's schema lets no odd id in"),
		AnswerLost: never(noAPI), OrderFails: never(noAPI), HalfAnswer: never(noAPI), Spoilt: providertest.SpoiltOrder{Reason: noAPI},
		OutOfStock: on(hosts[0], func(a *account, _ *providertest.Account) {
			for _, id := range []string{"stock-a", "stock-b", "stock-c", "stock-d"} {
				a.inventory.claims["other-"+id] = id
			}
		}),
		OfferGone: on(hosts[0], func(_ *account, s *providertest.Account) { s.OfferID = "metal-gone:home" }),
		Quota:     never(noShop), Payment: never(noShop), OutOfStockLater: never(noShop),
		Locked:       never("two installs at once wait for each other on the machine"),
		Unauthorized: never(noLogin), Forbidden: never(noLogin),
		RateLimited: never(noAPI), RateLimitedFor: never(noAPI), Down: never(noAPI), Hangs: never(noAPI), Garbage: never(noAPI),
		InstallFails: providertest.Situation{Arrange: func(t *testing.T) *providertest.Account {
			t.Helper()
			s := fails.Arrange(t)
			whole := s.Payload
			s.Payload = func(generation int) provider.Payload {
				p := whole(generation)
				p.CAPin = "nonsense"
				return p
			}
			return s
		}},
	})
}

// withEverything uses each field of the config.
func withEverything(a *account) *account {
	maps.Copy(a.machines[0], map[string]any{
		"port": 22, "user": "deploy", "sudo": true, "privateKey": "env://RACK", "labels": map[string]string{"rack": "1"},
		"price": map[string]any{"hourly": "0.35", "monthly": "189", "setup": "10.5", "currency": "EUR", "taxIncluded": true},
		"hardware": map[string]any{
			"arch": "arm64", "vcpu": 8, "memoryGiB": 15.5, "disks": []any{map[string]any{"sizeGB": 960, "count": 2, "media": "nvme"}},
			"gpu": map[string]any{"model": "L40S", "count": 2, "memoryGiB": 48},
		},
	})
	return a
}

func offerOf(t *testing.T, c client, machineID string) string {
	t.Helper()
	for _, m := range must[[]*model.Machine](t)(c.Machines(t.Context())) {
		if m.ID == machineID {
			return *m.OfferID
		}
	}
	t.Fatalf("there is no machine %s", machineID)
	return ""
}
