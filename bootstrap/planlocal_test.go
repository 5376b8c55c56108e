package bootstrap

import (
	"testing"

	"better/compute/model"
	"better/compute/provider"
)

// Without a provider behind the account, green credentials are those that the machine itself took: the one that would be bootstrapped.
func TestPlanOfALocalAccountLogsInOnTheMachine(t *testing.T) {
	t.Parallel()
	for class, code := range map[provider.Class]string{
		provider.SSHUnreachable: " SSH_UNREACHABLE", provider.SSHAuth: " SSH_AUTH_FAILED", provider.SSHHostKey: " HOST_KEY_CHANGED", "": "",
	} {
		for name, in := range map[string]func(*bench) PlanInput{
			"offer":   func(b *bench) PlanInput { return b.planOffer("small") },
			"machine": func(b *bench) PlanInput { return b.planMachine("box") },
		} {
			t.Run(name+code, func(t *testing.T) {
				t.Parallel()
				b := setup(t, model.ClaimLocal)
				b.cloud.boxes = []string{"box", "next"}
				if class != "" {
					b.cloud.next("identify", failsWith(class))
				}
				_, all := b.plan(b.service, in(b))
				equal(t, "credentials", all[4], "CREDENTIALS"+code)
				equal(t, "calls", b.cloud.calls[:2], []string{"machines", "identify"})
			})
		}
	}

	b := setup(t, model.ClaimLocal)
	_, all := b.plan(b.service, b.planMachine("box"))
	equal(t, "no machine to log in on", all[4:6], []string{"CREDENTIALS", "AVAILABILITY MACHINE_NOT_FOUND"})
	equal(t, "calls", b.cloud.calls, []string{"machines", "machines"})
}
