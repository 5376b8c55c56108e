package server

import (
	"strings"
	"testing"
)

// A secret that is written in the wrong place of a document must not come back in the error, nor go into a log.
func TestErrorsRepeatNoValue(t *testing.T) {
	t.Parallel()
	w := setup(t)
	const canary = "HUNTER2canary"
	for _, document := range []string{
		`{ providerAccounts(tenantId: "t", first: "` + canary + `") { nodes { id } } }`,
		`{ providerAccounts(tenantId: "t", first: ` + canary + `) { nodes { id } } }`,
		`{ providerAccounts(tenantId: "t", first: {a: "` + canary + `"}) { nodes { id } } }`,
		`{ providerAccounts(tenantId: "t", first: ["` + canary + `"]) { nodes { id } } }`,
		`{ providers "` + canary + `" }`,
		`{ providerAccounts(tenantId: "t", first: 1 "` + canary + `") { nodes { id } } }`,
		`"` + canary + `" { providers { name } }`,
		`query($x: Int = "` + canary + `") { providerAccounts(tenantId: "t", first: $x) { nodes { id } } }`,
		`mutation { createProviderAccount(input: [{config: {apiToken: "` + canary + `"}}]) { replayed } }`,
		`mutation { createProviderAccount(input: {tenantId: "t", provider: "p", name: "n", config: {apiToken: "` + canary + `", z: 1e999}}) { replayed } }`,
		`mutation { putSecret(input: {tenantId: "t", name: "n", value: ` + canary + `}) { secret { name } } }`,
		`mutation { createPool(input: {tenantId: "t", name: "n", class: ` + canary + `, agent: BCD}) { pool { id } } }`,
		`query @skip(if: "` + canary + `") { __typename }`,
	} {
		_, body := w.post(t, document)
		if !strings.Contains(body, `"errors"`) {
			t.Errorf("%s was answered: %s", document, body)
		}
		if strings.Contains(body, canary) {
			t.Errorf("%s: the answer repeats the value: %s", document, body)
		}
	}
}

func TestWithoutValue(t *testing.T) {
	t.Parallel()
	for message, want := range map[string]string{
		`Expected value of type "A!", found [{b: "secret"}].`:               `Expected value of type "A!".`,
		`String cannot represent a non string value: secret`:                `String cannot represent a non string value.`,
		`Enum "Kind" cannot represent non-enum value: "secret".`:            `Enum "Kind" cannot represent non-enum value.`,
		`Value "secret" does not exist in "Kind" enum.`:                     `The value does not exist in "Kind" enum.`,
		`secret is not a valid Kind`:                                        `The value is not a valid Kind`,
		`Unexpected String "secret"`:                                        `Unexpected String.`,
		`Expected Name, found String`:                                       `Expected Name.`,
		`Expected "on", found Name "secret"`:                                `Expected "on".`,
		`Cannot query field "x" on type "Query".`:                           `Cannot query field "x" on type "Query".`,
		`Field "A.b" of required type "String!" was not provided.`:          `Field "A.b" of required type "String!" was not provided.`,
		`Value "a" does not exist in "b" does not exist in "Kind" enum.`:    `The value does not exist in "Kind" enum.`,
		`Variable "$x" of type "Int" used in position expecting type "ID".`: `Variable "$x" of type "Int" used in position expecting type "ID".`,
		`Unexpected single quote character ('), did you mean to use a (")?`: `Unexpected single quote character ('), did you mean to use a (")?`,
	} {
		if got := withoutValue(message); got != want {
			t.Errorf("withoutValue(%q) = %q, want %q", message, got, want)
		}
	}
}
