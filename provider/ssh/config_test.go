package ssh_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"better/compute/model"
	"better/compute/provider"
	"better/compute/provider/ssh"
)

// pin is a well-formed fingerprint that ends in n.
func pin(n int) string { return fmt.Sprintf("SHA256:%043d", n) }

func box(id string, n int, more map[string]any) map[string]any {
	m := map[string]any{"id": id, "address": "10.0.0.1", "hostFingerprint": pin(n), "kind": "vps"}
	maps.Copy(m, more)
	return m
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	registry, err := provider.NewRegistry(ssh.New(ssh.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		key      string
		machines []map[string]any
		says     []string
	}{
		"one id twice":       {"secret://k", []map[string]any{box("a", 1, nil), box("a", 2, nil)}, []string{"id a"}},
		"one host key twice": {"secret://k", []map[string]any{box("a", 1, nil), box("b", 1, nil)}, []string{"a and b", "host fingerprint"}},
		"no private key":     {"", []map[string]any{box("a", 1, nil)}, []string{"Machine a", "privateKey"}},
		"loopback":           {"secret://k", []map[string]any{box("a", 1, map[string]any{"address": "127.0.0.2"})}, []string{"127.0.0.2", "the server's own"}},
		"metadata":           {"secret://k", []map[string]any{box("a", 1, map[string]any{"address": "169.254.169.254"})}, []string{"link-local"}},
		"mapped loopback":    {"secret://k", []map[string]any{box("a", 1, map[string]any{"address": "::ffff:127.0.0.1"})}, []string{"the server's own"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config := map[string]any{"machines": c.machines}
			if c.key != "" {
				config["privateKey"] = c.key
			}
			text, _ := json.Marshal(config)
			_, err := ssh.New(ssh.Options{}).Open(t.Context(), provider.Account{Config: text})
			wantError(t, err, provider.InvalidConfig, c.says...)
			if issues := registry.ValidateConfig("ssh", text); len(issues) != 1 || issues[0].Path != "" {
				t.Errorf("ValidateConfig = %v: such a config would be stored", issues)
			}
		})
	}
}

func TestConfigSchema(t *testing.T) {
	t.Parallel()
	registry, err := provider.NewRegistry(ssh.New(ssh.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		config string
		at     string // the pointer of the only issue; empty for none
	}{
		"nothing to say":       {`{"machines":[]}`, ""},
		"no machines":          {`{}`, "/machines"},
		"private key in clear": {`{"machines":[],"privateKey":"-----BEGIN OPENSSH PRIVATE KEY-----"}`, "/privateKey"},
		"unknown field":        {`{"machines":[],"passwords":1}`, "/passwords"},
		"pin of another form":  {`{"machines":[{"id":"a","address":"a.example","kind":"vps","hostFingerprint":"MD5:00"}]}`, "/machines/0/hostFingerprint"},
		"address with a port":  {`{"machines":[{"id":"a","address":"a.example:22:","kind":"vps","hostFingerprint":"` + pin(1) + `"}]}`, "/machines/0/address"},
		"IPv6":                 {`{"machines":[{"id":"a","address":"2001:db8::1","kind":"vps","hostFingerprint":"` + pin(1) + `"}],"privateKey":"secret://k"}`, ""},
		"key of one machine":   {`{"machines":[{"id":"a","address":"a","kind":"vps","hostFingerprint":"` + pin(1) + `","privateKey":"x"}]}`, "/machines/0/privateKey"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			issues := registry.ValidateConfig("ssh", json.RawMessage(c.config))
			if c.at == "" && len(issues) > 0 || c.at != "" && (len(issues) != 1 || issues[0].Path != c.at) {
				t.Errorf("issues %v, want one at %q", issues, c.at)
			}
		})
	}
}

func TestSecretsThatAreNoKeys(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"", "canary-not-a-key", "-----BEGIN OPENSSH PRIVATE KEY-----\ncanary\n-----END OPENSSH PRIVATE KEY-----\n"} {
		a := accountOn()
		a.key, a.machines = text, []map[string]any{box("a", 1, nil)}
		err := a.open(t).Check(t.Context())
		wantError(t, err, provider.SecretUnresolved, "secret://rack")
		if strings.Contains(err.Error(), "canary") {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
	a := accountOn()
	a.machines = []map[string]any{box("a", 1, map[string]any{"privateKey": "secret://missing"})}
	err := a.open(t).Check(t.Context())
	wantError(t, err, provider.SecretUnresolved)
}

func TestOffers(t *testing.T) {
	t.Parallel()
	big := map[string]any{"vcpu": 16, "memoryGiB": 64, "arch": "amd64", "gpu": map[string]any{"model": "NVIDIA A100 80GB", "count": 4}}
	cheap := map[string]any{"monthly": "10.00", "currency": "EUR"}
	dear := map[string]any{"monthly": "11.00", "currency": "EUR"}
	a := accountOn()
	a.machines = []map[string]any{
		box("b1", 1, map[string]any{"hardware": big, "kind": "metal", "region": "FSN1", "price": cheap}),
		box("b2", 2, map[string]any{"hardware": big, "kind": "metal", "region": "FSN1", "price": cheap}),
		box("b3", 3, map[string]any{"hardware": big, "kind": "metal", "region": "nbg1", "price": cheap}),
		box("b4", 4, map[string]any{"hardware": big, "kind": "metal", "region": "nbg1", "price": dear}),
		box("s1", 5, nil),
	}
	c := a.open(t)
	offers := must[[]*model.Offer](t)(provider.CheckOffers(must[[]*model.Offer](t)(c.Offers(t.Context()))))
	if len(offers) != 3 {
		t.Fatalf("%d offers, want 3", len(offers))
	}
	first := offers[0]
	if !strings.HasPrefix(first.ID, "metal-16c-64g-a100-80gbx4-") || !strings.HasSuffix(first.ID, ":fsn1") || first.ProviderRegion != "FSN1" {
		t.Errorf("offer %+v", first)
	}
	if first.GPU.Model != "A100-80GB" || first.GPU.Vendor != "nvidia" || first.GPU.Count != 4 || *first.VCPU != 16 || *first.Price.Monthly != "10.00" {
		t.Errorf("offer %+v, GPU %+v", first, first.GPU)
	}
	if offers[1].Price != nil || offers[2].VCPU != nil {
		t.Errorf("an offer shows what is not known: %+v %+v", offers[1], offers[2])
	}
	order := func(operation string) (string, error) {
		claim, err := c.Order(t.Context(), provider.Order{OperationID: operation, OfferID: first.ID})
		if err != nil {
			return "", err
		}
		return claim.MachineID, nil
	}
	one, again, two := must[string](t)(order("op-1")), must[string](t)(order("op-1")), must[string](t)(order("op-2"))
	if one != again || one == two {
		t.Errorf("op-1 took %s and %s, op-2 took %s", one, again, two)
	}
	_, err := order("op-3")
	wantError(t, err, provider.OutOfStock)
	if found := must[*provider.Claim](t)(c.FindClaim(t.Context(), "op-2")); found.MachineID != two || found.State != provider.ClaimReady {
		t.Errorf("found %+v, want %s", found, two)
	}
	if found := must[*provider.Claim](t)(c.FindClaim(t.Context(), "op-3")); found != nil {
		t.Errorf("found %+v, want nothing", found)
	}
	if gone := must[[]*model.Offer](t)(c.Offers(t.Context()))[0]; gone.ID != first.ID || gone.Availability != model.OutOfStock {
		t.Errorf("all taken: %+v", gone)
	}
	machines := must[[]*model.Machine](t)(c.Machines(t.Context()))
	if machines[0].Status != "taken" || machines[4].Status != "free" || *machines[0].OfferID != first.ID {
		t.Errorf("machines %+v %+v", machines[0], machines[4])
	}
	_, err = c.Order(t.Context(), provider.Order{OperationID: "op-4", OfferID: "other"})
	wantError(t, err, provider.OfferGone)
	err = c.Release(t.Context(), "op-1", two)
	wantError(t, err, provider.Conflict, two)
}

func TestOfferIDIsStable(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		region := rapid.StringMatching(`[A-Za-z0-9][A-Za-z0-9._-]{0,62}`).Draw(rt, "region")
		gpu := rapid.StringMatching(`[A-Za-z0-9 ._/-]{1,64}`).Draw(rt, "gpu")
		hardware := map[string]any{
			"vcpu": rapid.IntRange(1, 65536).Draw(rt, "vcpu"), "memoryGiB": rapid.Float64Range(0.1, 1e6).Draw(rt, "memory"),
			"gpu": map[string]any{"model": gpu, "count": 1},
		}
		a := accountOn()
		a.machines = []map[string]any{
			box("a", 1, map[string]any{"region": region, "hardware": hardware}),
			box("b", 2, map[string]any{"region": strings.ToUpper(region), "hardware": hardware, "labels": map[string]string{"x": "y"}}),
			box("c", 3, map[string]any{"region": region, "hardware": hardware, "kind": "metal"}),
		}
		offers := must[[]*model.Offer](t)(a.open(t).Offers(t.Context()))
		if _, err := provider.CheckOffers(offers); err != nil || len(offers) != 2 {
			rt.Errorf("%d offers, %v", len(offers), err)
		}
	})
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	refused := []string{
		"127.0.0.1", "127.255.0.9", "::1", "::ffff:127.0.0.1", "0.0.0.0", "0.1.2.3", "::", "169.254.169.254", "169.254.0.1", "fe80::1", "fe80::1%eth0",
		"224.0.0.1", "ff02::1", "255.255.255.255", "100.100.100.200", "fd00:ec2::254", "64:ff9b::a9fe:a9fe", "64:ff9b::7f00:1", "168.63.129.16",
	}
	allowed := []string{"10.0.0.1", "192.168.1.1", "172.16.0.1", "100.64.0.1", "8.8.8.8", "fd12::1", "2001:db8::1", "64:ff9b::a00:1"}
	for _, a := range refused {
		if ssh.Refuses(ssh.Options{}, netip.MustParseAddr(a)) == "" {
			t.Errorf("%s is not refused", a)
		}
	}
	for _, a := range allowed {
		if why := ssh.Refuses(ssh.Options{}, netip.MustParseAddr(a)); why != "" {
			t.Errorf("%s is refused: %s", a, why)
		}
	}
	if why := ssh.Refuses(ssh.Options{AllowLoopback: true}, netip.MustParseAddr("127.0.0.1")); why != "" {
		t.Errorf("loopback is refused though it is allowed: %s", why)
	}
}

func TestANameIsJudgedByWhatItResolvesTo(t *testing.T) {
	t.Parallel()
	a := accountOn()
	a.machines = []map[string]any{
		box("a", 1, map[string]any{"address": "localhost"}),
		box("b", 2, map[string]any{"address": "name.invalid"}),
	}
	c := a.open(t)
	_, err := c.Identify(t.Context(), "a")
	wantError(t, err, provider.InvalidConfig, "refused")
	_, err = c.Identify(t.Context(), "b")
	wantError(t, err, provider.SSHUnreachable, "name.invalid", "resolve")
}

// shells are those of this machine that a POSIX script must run in.
func shells() [][]string {
	var found [][]string
	for _, s := range [][]string{{"dash"}, {"bash", "--posix"}, {"bash"}, {"busybox", "ash"}, {"ksh"}, {"mksh"}, {"zsh"}} {
		if _, err := exec.LookPath(s[0]); err == nil {
			found = append(found, s)
		}
	}
	return found
}

func runIn(t *testing.T, shell []string, script string) string {
	t.Helper()
	cmd := exec.Command(shell[0], append(slices.Clone(shell[1:]), "-s")...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
	cmd.Stdin = strings.NewReader(script)
	out, _ := cmd.CombinedOutput()
	return string(out)
}

func TestScriptsInEveryShell(t *testing.T) {
	t.Parallel()
	nasty := `a'b"c $(exit 9) \ ` + "`x` \n é %s"
	for _, shell := range shells() {
		for _, name := range []string{"identify.sh", "prepare.sh", "status.sh"} {
			out := runIn(t, shell, ssh.Compose(map[string]string{"unused": nasty}, name))
			if !strings.HasPrefix(out, "@begin\n") || !strings.HasSuffix(out, "\n@end 0\n") || strings.Contains(out, "not found") {
				t.Errorf("%v: %s: %s", shell, name, out)
			}
		}
	}
}

func TestHalfAScriptRunsNothing(t *testing.T) {
	t.Parallel()
	script := ssh.Compose(nil, "prepare.sh")
	whole := strings.LastIndex(script, "}")
	rapid.Check(t, func(rt *rapid.T) {
		shell := rapid.SampledFrom(shells()).Draw(rt, "shell")
		cut := rapid.IntRange(0, whole).Draw(rt, "cut")
		if out := runIn(t, shell, script[:cut]); strings.Contains(out, "@begin\n") || strings.Contains(out, "now=") {
			rt.Errorf("%v ran the first %d bytes: %s", shell, cut, out)
		}
	})
}
