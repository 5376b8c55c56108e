package identity

import (
	"encoding/json"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"better/compute/authz"
)

const (
	maxGroups = 200
	latest    = 1 << 36 // seconds: beyond the year 4000 nothing is a date
)

// nameForm is that of what bindings can be made for.
var nameForm = regexp.MustCompile(`\A[!-~]{1,256}\z`)

// claims are read by their exact names: the decoder of structs would take "ISS" for "iss".
type claims map[string]json.RawMessage

func readClaims(payload []byte) (claims, error) {
	var c claims
	if err := json.Unmarshal(payload, &c); err != nil || c == nil {
		return nil, Malformed
	}
	return c, nil
}

// text is empty for a claim that is absent, or something else than a string.
func (c claims) text(name string) string {
	var s string
	if json.Unmarshal(c[name], &s) != nil {
		return ""
	}
	return s
}

// texts reads a claim that is one string or a list of strings.
func (c claims) texts(name string) []string { return texts(c[name]) }

func texts(raw json.RawMessage) []string {
	var one string
	if json.Unmarshal(raw, &one) == nil && len(raw) > 0 && raw[0] == '"' {
		return []string{one}
	}
	var many []any
	if json.Unmarshal(raw, &many) != nil {
		return nil
	}
	var found []string
	for _, v := range many {
		if s, ok := v.(string); ok {
			found = append(found, s)
		}
	}
	return found
}

// date is false for a claim that is absent or no date.
func (c claims) date(name string) (time.Time, bool) {
	var n *float64
	if json.Unmarshal(c[name], &n) != nil || n == nil || math.Abs(*n) > latest {
		return time.Time{}, false
	}
	whole, part := math.Modf(*n)
	return time.Unix(int64(whole), int64(part*float64(time.Second))), true
}

func (o *OIDC) checkAddressees(payload []byte) error {
	c, err := readClaims(payload)
	switch {
	case err != nil:
		return err
	case c.text("iss") != o.options.Issuer:
		return OtherIssuer
	case !slices.Contains(c.texts("aud"), o.options.Audience):
		return OtherAudience
	default:
		return nil
	}
}

// actor reads the claims of a token whose signature is good.
func (o *OIDC) actor(payload []byte) (authz.Actor, error) {
	if err := o.checkAddressees(payload); err != nil {
		return authz.Actor{}, err
	}
	c, err := readClaims(payload)
	if err != nil {
		return authz.Actor{}, err
	}
	ends, err := o.checkTimes(c)
	if err != nil {
		return authz.Actor{}, err
	}
	sub := c.text("sub")
	if !nameForm.MatchString(sub) {
		return authz.Actor{}, BadSubject
	}
	groups, err := o.groups(c)
	if err != nil {
		return authz.Actor{}, err
	}
	return authz.Actor{Subject: "user:" + sub, Groups: groups, Expires: ends}, nil
}

// checkTimes gives the time from which the token does not count any more.
func (o *OIDC) checkTimes(c claims) (ends time.Time, err error) {
	now := o.now()
	expires, ok := c.date("exp")
	if !ok {
		return time.Time{}, Malformed
	}
	ends = expires.Add(o.options.Leeway)
	if !now.Before(ends) {
		return time.Time{}, Expired
	}
	if _, has := c["nbf"]; has {
		begins, ok := c.date("nbf")
		if !ok {
			return time.Time{}, Malformed
		}
		if now.Add(o.options.Leeway).Before(begins) {
			return time.Time{}, NotYet
		}
	}
	return ends, nil
}

// groups reads the names of the caller's groups. A name that no binding can be made for is left out. Of too many none is, and none may
// be missing: a binding can also deny.
func (o *OIDC) groups(c claims) ([]authz.Subject, error) {
	path := o.options.GroupsClaim
	if path == "" {
		return nil, nil
	}
	raw, err := c.find(path)
	if err != nil || c.leavesOut(path) {
		return nil, BadGroups
	}
	if isAbsent(raw) {
		return nil, nil
	}
	var names []string
	if raw[0] == '"' {
		names = texts(raw)
	} else if names, err = listOfTexts(raw); err != nil {
		return nil, err
	}
	var groups []authz.Subject
	for _, name := range names {
		if nameForm.MatchString(name) {
			groups = append(groups, "group:"+name)
		}
	}
	slices.Sort(groups)
	groups = slices.Compact(groups)
	if len(groups) > maxGroups {
		return nil, BadGroups
	}
	return groups, nil
}

func isAbsent(raw json.RawMessage) bool { return raw == nil || string(raw) == "null" }

// listOfTexts takes nothing else than texts for a list of them.
func listOfTexts(raw json.RawMessage) ([]string, error) {
	var list []*string
	if json.Unmarshal(raw, &list) != nil || slices.Contains(list, nil) {
		return nil, BadGroups
	}
	names := make([]string, len(list))
	for i, name := range list {
		names[i] = *name
	}
	return names, nil
}

// leavesOut reports whether the issuer says that the claim is to be had elsewhere, which it does when it is long: as a distributed claim
// (OpenID Connect Core, 5.6.2), or by the flag that some issuers set where that does not fit.
func (c claims) leavesOut(path string) bool {
	name, _, _ := strings.Cut(path, ".")
	if flag := c["hasgroups"]; !isAbsent(flag) && string(flag) != "false" && isAbsent(c[path]) {
		return true
	}
	if isAbsent(c["_claim_names"]) {
		return false
	}
	elsewhere, err := readClaims(c["_claim_names"])
	_, whole := elsewhere[path]
	_, first := elsewhere[name]
	return err != nil || whole || first
}

// find takes the path for one name first: names of claims can be URLs. BadGroups when it goes through something that has no names.
func (c claims) find(path string) (json.RawMessage, error) {
	if raw, has := c[path]; has {
		return raw, nil
	}
	name, rest, nested := strings.Cut(path, ".")
	if !nested || isAbsent(c[name]) {
		return nil, nil
	}
	inner, err := readClaims(c[name])
	if err != nil {
		return nil, BadGroups
	}
	return inner.find(rest)
}
