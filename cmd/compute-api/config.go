package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/netip"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-viper/mapstructure/v2"
	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/v2"

	"better/compute/apitoken"
	"better/compute/authz"
	"better/compute/bootstrap"
	"better/compute/internal/guard"
	"better/compute/internal/problem"
	"better/compute/model"
)

// envPrefix is what the environment variables of settings start with. A variable that is no setting's is ignored: an orchestrator may
// set some of that name, COMPUTE_PORT for a service called compute.
const envPrefix = "COMPUTE_"

// embeddedConns is how many connections the pool may take of the 50 that the embedded database has: there are some beside the pool, and
// admin commands come with their own.
const embeddedConns = 40

// config is the configuration file. The koanf tags are its keys; `docs/config.md` explains each, and a test compares the two.
type config struct {
	Listen    string          `koanf:"listen"`
	StateDir  string          `koanf:"stateDir"`
	Database  databaseConfig  `koanf:"database"`
	Auth      authConfig      `koanf:"auth"`
	Authz     authzConfig     `koanf:"authz"`
	Providers []providerEntry `koanf:"providers"`
	Secrets   secretsConfig   `koanf:"secrets"`
	// Bootstrap is nil where the file has no such section: bootstraps are then refused with INVALID_CONFIG.
	Bootstrap *bootstrapConfig `koanf:"bootstrap"`
	PKI       pkiConfig        `koanf:"pki"`
	Agent     agentConfig      `koanf:"agent"`
	GraphQL   graphqlConfig    `koanf:"graphql"`
	Limits    limitsConfig     `koanf:"limits"`
}

type databaseConfig struct {
	URL           string `koanf:"url"`
	MigrationsURL string `koanf:"migrationsUrl"`
	MaxConns      int32  `koanf:"maxConns"`
}

type authConfig struct {
	// OIDC is nil where the file has no such section: tokens of no issuer are taken.
	OIDC              *oidcConfig   `koanf:"oidc"`
	AllowStaticTokens bool          `koanf:"allowStaticTokens"`
	Tokens            []tokenConfig `koanf:"tokens"`
}

type oidcConfig struct {
	Issuer      string        `koanf:"issuer"`
	Audience    string        `koanf:"audience"`
	GroupsClaim string        `koanf:"groupsClaim"`
	Leeway      time.Duration `koanf:"leeway"`
	// ConsoleClientID is who the console is at the issuer; empty means that nobody signs in there.
	ConsoleClientID string `koanf:"consoleClientID"`
}

type tokenConfig struct {
	Token   string   `koanf:"token"`
	Subject string   `koanf:"subject"`
	Groups  []string `koanf:"groups"`
}

type authzConfig struct {
	Bindings []bindingConfig `koanf:"bindings"`
}

type bindingConfig struct {
	Subject string `koanf:"subject"`
	Role    string `koanf:"role"`
	Object  string `koanf:"object"`
	Effect  string `koanf:"effect"`
}

func (b bindingConfig) binding() model.RoleBinding {
	effect := model.BindingEffect(b.Effect)
	if effect == "" {
		effect = model.Allow
	}
	return model.RoleBinding{Subject: b.Subject, Role: b.Role, Object: b.Object, Effect: effect}
}

// providerEntry registers one driver. The other keys are the driver's own.
type providerEntry struct {
	Name          string `koanf:"name"`
	Endpoint      string `koanf:"endpoint"`
	AllowLoopback bool   `koanf:"allowLoopback"`
	// AllowNetworks are beside the public internet, each in the form of 10.1.0.0/16.
	AllowNetworks []string `koanf:"allowNetworks"`
}

// networks takes the configuration for checked.
func (e providerEntry) networks() guard.Networks {
	var networks guard.Networks
	for _, text := range e.AllowNetworks {
		if p, err := netip.ParsePrefix(text); err == nil {
			networks = append(networks, p)
		}
	}
	return networks
}

type secretsConfig struct {
	Env   secretsEnvConfig   `koanf:"env"`
	Store secretsStoreConfig `koanf:"store"`
	Vault *vaultConfig       `koanf:"vault"`
}

type secretsEnvConfig struct {
	Allow   []string          `koanf:"allow"`
	Tenants []secretsVariable `koanf:"tenants"`
}

// secretsVariable lets one tenant refer to a variable, by a name of its own.
type secretsVariable struct {
	TenantID string `koanf:"tenantId"`
	Name     string `koanf:"name"`
	Variable string `koanf:"variable"`
}

type secretsStoreConfig struct {
	KeyFile     string   `koanf:"keyFile"`
	OldKeyFiles []string `koanf:"oldKeyFiles"`
}

type vaultConfig struct {
	Address   string         `koanf:"address"`
	Namespace string         `koanf:"namespace"`
	CAFile    string         `koanf:"caFile"`
	Engine    int            `koanf:"engine"`
	Mount     string         `koanf:"mount"`
	Path      string         `koanf:"path"`
	TokenFile string         `koanf:"tokenFile"`
	AppRole   *appRoleConfig `koanf:"appRole"`
}

type appRoleConfig struct {
	Mount        string `koanf:"mount"`
	RoleIDFile   string `koanf:"roleIdFile"`
	SecretIDFile string `koanf:"secretIdFile"`
}

type bootstrapConfig struct {
	// AgentURL is where machines reach the agent listener; empty means the address that it listens on.
	AgentURL      string        `koanf:"agentURL"`
	AgentBinaries string        `koanf:"agentBinaries"`
	TrustDomain   string        `koanf:"trustDomain"`
	TokenTTL      time.Duration `koanf:"tokenTTL"`
	Workers       int           `koanf:"workers"`
	// OrdersPerHour is of each tenant; nil means the default, and 0 that there is no limit.
	OrdersPerHour *int          `koanf:"ordersPerHour"`
	KeepFailed    time.Duration `koanf:"keepFailed"`
	SweepEvery    time.Duration `koanf:"sweepEvery"`
	Limits        stateLimits   `koanf:"limits"`
}

// defaultOrdersPerHour stops a client that orders in a loop before it costs much.
const defaultOrdersPerHour = 20

func (c *config) ordersPerHour() int {
	if c.Bootstrap == nil || c.Bootstrap.OrdersPerHour == nil {
		return defaultOrdersPerHour
	}
	return *c.Bootstrap.OrdersPerHour
}

// stateLimits is how long a run may stay in each state; zero means the default.
type stateLimits struct {
	ClaimVPS    time.Duration `koanf:"claimVPS"`
	ClaimMetal  time.Duration `koanf:"claimMetal"`
	Identifying time.Duration `koanf:"identifying"`
	Preparing   time.Duration `koanf:"preparing"`
	Installing  time.Duration `koanf:"installing"`
	Installed   time.Duration `koanf:"installed"`
}

func (c *config) timing() bootstrap.Timing {
	if c.Bootstrap == nil {
		return bootstrap.Timing{}
	}
	l := c.Bootstrap.Limits
	return bootstrap.Timing{
		ClaimVPS: l.ClaimVPS, ClaimMetal: l.ClaimMetal, Identifying: l.Identifying,
		Preparing: l.Preparing, Installing: l.Installing, Installed: l.Installed,
		KeepFailed: c.Bootstrap.KeepFailed, Sweep: c.Bootstrap.SweepEvery,
	}
}

type pkiConfig struct {
	Dir string `koanf:"dir"`
}

type agentConfig struct {
	Listen    string        `koanf:"listen"`
	Heartbeat time.Duration `koanf:"heartbeat"`
}

type graphqlConfig struct {
	Introspection       bool     `koanf:"introspection"`
	Suggestions         bool     `koanf:"suggestions"`
	GraphiQL            bool     `koanf:"graphiql"`
	AllowedOrigins      []string `koanf:"allowedOrigins"`
	PersistedOperations string   `koanf:"persistedOperations"`
}

// limitsConfig overrides the edge's limits; zero means the default.
type limitsConfig struct {
	BodyBytes         int           `koanf:"bodyBytes"`
	DocumentBytes     int           `koanf:"documentBytes"`
	Tokens            int           `koanf:"tokens"`
	Depth             int           `koanf:"depth"`
	Cost              int           `koanf:"cost"`
	RootFields        int           `koanf:"rootFields"`
	Aliases           int           `koanf:"aliases"`
	AnswerBytes       int           `koanf:"answerBytes"`
	OperationTime     time.Duration `koanf:"operationTime"`
	LiveOperationTime time.Duration `koanf:"liveOperationTime"`
	InitTime          time.Duration `koanf:"initTime"`
	// DrainNotice alone means zero when it is zero.
	DrainNotice           time.Duration `koanf:"drainNotice"`
	SocketOperations      int           `koanf:"socketOperations"`
	SocketsPerSubject     int           `koanf:"socketsPerSubject"`
	StreamsPerSubject     int           `koanf:"streamsPerSubject"`
	StreamsPerTenant      int           `koanf:"streamsPerTenant"`
	OperationsPerSubject  int           `koanf:"operationsPerSubject"`
	OperationsPerTenant   int           `koanf:"operationsPerTenant"`
	OperationWait         time.Duration `koanf:"operationWait"`
	PointsPerSecond       int           `koanf:"pointsPerSecond"`
	PointsAtMost          int           `koanf:"pointsAtMost"`
	TenantPointsPerSecond int           `koanf:"tenantPointsPerSecond"`
	TenantPointsAtMost    int           `koanf:"tenantPointsAtMost"`
	DenialsPerSecond      int           `koanf:"denialsPerSecond"`
	DenialsAtMost         int           `koanf:"denialsAtMost"`
}

// denials gives the limits that were set, over those that hold without.
func (l limitsConfig) denials(standard authz.DenialLimits) authz.DenialLimits {
	return authz.DenialLimits{
		PerSecond: cmp.Or(l.DenialsPerSecond, standard.PerSecond), AtMost: cmp.Or(l.DenialsAtMost, standard.AtMost),
	}
}

func defaultConfig() config {
	return config{
		Listen:   "127.0.0.1:8080",
		StateDir: "data",
		Database: databaseConfig{MaxConns: 20},
		Agent:    agentConfig{Listen: "127.0.0.1:8443", Heartbeat: 30 * time.Second},
		Limits:   limitsConfig{DrainNotice: 2 * time.Second},
	}
}

// configError lists every setting that is wrong, by its key.
type configError []string

func (e configError) Error() string {
	return "the configuration is wrong:\n  " + strings.Join(e, "\n  ")
}

// loadConfig reads the file (none when path is empty) over base, then the environment over both, and judges the result.
func loadConfig(base config, path string, environ []string) (config, error) {
	k := koanf.New(".")
	if path != "" {
		if err := k.Load(file.Provider(path), yaml.Parser()); err != nil {
			return config{}, fmt.Errorf("reading the configuration %s: %w", path, err)
		}
	}
	fromEnv, problems := settingsFromEnv(environ)
	for _, key := range slices.Sorted(maps.Keys(fromEnv)) {
		if err := k.Set(key, fromEnv[key]); err != nil {
			return config{}, fmt.Errorf("setting %s from the environment: %w", key, err)
		}
	}
	c := base
	if err := k.UnmarshalWithConf("", &c, koanf.UnmarshalConf{DecoderConfig: strictDecoder(&c)}); err != nil {
		decoded := decodeProblems(err)
		problems = append(problems, decoded...)
		if !decoded.onlyUnknownKeys() { // a setting of the wrong type was not read, so nothing can be said of it
			return config{}, problems
		}
	}
	if problems = append(problems, c.problems()...); len(problems) > 0 {
		return config{}, problems
	}
	return c, nil
}

func strictDecoder(c *config) *mapstructure.DecoderConfig {
	return &mapstructure.DecoderConfig{
		Result: c, TagName: "koanf", ErrorUnused: true, WeaklyTypedInput: false,
		DecodeHook: mapstructure.StringToTimeDurationHookFunc(),
	}
}

func (e configError) onlyUnknownKeys() bool {
	return !slices.ContainsFunc(e, func(line string) bool { return !strings.HasSuffix(line, ": is no key") })
}

// decodeProblems turns the decoder's complaints, which name keys, into one line each.
func decodeProblems(err error) configError {
	var lines configError
	for line := range strings.Lines(err.Error()) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "decoding failed") {
			lines = append(lines, unquoteKey(line))
		}
	}
	return lines
}

// unquoteKey makes "'a.b' expected ..." into "a.b: expected ...", and "'a' has invalid keys: b" into "a.b: is no key", as the other
// problems read.
func unquoteKey(line string) string {
	if at, unknown, ok := strings.Cut(line, "' has invalid keys: "); ok {
		section := strings.TrimPrefix(at, "'") + "."
		if section == "main.config." { // the type's name: the file's top
			section = ""
		}
		return section + strings.ReplaceAll(unknown, ", ", ": is no key; "+section) + ": is no key"
	}
	if key, rest, ok := strings.Cut(strings.TrimPrefix(line, "'"), "' "); ok && strings.HasPrefix(line, "'") && key != "" {
		return key + ": " + rest
	}
	return line
}

// settingsFromEnv finds the settings that the environment overrides: the variable of a key is COMPUTE_ and the key's path in upper
// case, joined by `_`. Lists are written as JSON.
func settingsFromEnv(environ []string) (map[string]any, configError) {
	leaves := map[string]leaf{}
	collectLeaves(reflect.TypeFor[config](), "", leaves)
	settings, problems := map[string]any{}, configError{}
	for _, line := range environ {
		name, text, _ := strings.Cut(line, "=")
		l, known := leaves[name]
		if !known {
			continue
		}
		v, err := l.parse(text)
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s (from %s): %v", l.key, name, err))
			continue
		}
		settings[l.key] = v
	}
	return settings, problems
}

type leaf struct {
	key string
	typ reflect.Type
}

func collectLeaves(t reflect.Type, prefix string, into map[string]leaf) {
	for f := range t.Fields() {
		key, typ := prefix+f.Tag.Get("koanf"), f.Type
		if typ.Kind() == reflect.Pointer {
			typ = typ.Elem()
		}
		if typ.Kind() == reflect.Struct {
			collectLeaves(typ, key+".", into)
			continue
		}
		into[envPrefix+strings.ToUpper(strings.ReplaceAll(key, ".", "_"))] = leaf{key: key, typ: typ}
	}
}

func (l leaf) parse(text string) (any, error) {
	if l.typ.Kind() == reflect.String || l.typ == reflect.TypeFor[time.Duration]() {
		return text, nil
	}
	if l.typ.Kind() == reflect.Int || l.typ.Kind() == reflect.Int32 {
		n, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			return nil, errors.New("must be a whole number")
		}
		return int(n), nil
	}
	var v any
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		return nil, errors.New("must be true, false or a JSON list")
	}
	return v, nil
}

var (
	// A service with a slash in its name is a tenant's own, which only an API token can be.
	callerPattern      = regexp.MustCompile(`^(user:[!-~]{1,256}|service:[!-.0-~]{1,256})$`)
	groupPattern       = regexp.MustCompile(`^(group:)?[!-~]{1,256}$`)
	tokenPattern       = regexp.MustCompile(`^[!-~]{1,1000}$`)
	trustDomainPattern = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?$`)
)

// problems lists what is wrong with settings that have the right type.
func (c *config) problems() configError {
	var p configError
	add := func(key, format string, args ...any) { p = append(p, key+": "+fmt.Sprintf(format, args...)) }
	for key, address := range map[string]string{"listen": c.Listen, "agent.listen": c.Agent.Listen} {
		if _, _, err := net.SplitHostPort(address); err != nil {
			add(key, "%q is not host:port", address)
		}
	}
	if c.StateDir == "" {
		add("stateDir", "must not be empty")
	}
	if c.Agent.Heartbeat < time.Second || c.Agent.Heartbeat > time.Hour { // what agents take
		add("agent.heartbeat", "must be 1s to 1h, not %s", c.Agent.Heartbeat)
	}
	c.Secrets.problems(add)
	c.databaseProblems(add)
	c.authProblems(add)
	c.oidcProblems(add)
	c.providerProblems(add)
	c.bootstrapProblems(add)
	c.edgeProblems(add)
	slices.Sort(p)
	return p
}

func (c *config) databaseProblems(add func(key, format string, args ...any)) {
	d := c.Database
	switch {
	case d.MaxConns < 4 || d.MaxConns > 1000:
		add("database.maxConns", "must be 4 to 1000, not %d", d.MaxConns)
	case d.URL == "" && d.MaxConns > embeddedConns:
		add("database.maxConns", "must be at most %d with the embedded database, not %d", embeddedConns, d.MaxConns)
	}
	if d.URL == "" && d.MigrationsURL != "" {
		add("database.migrationsUrl", "needs database.url: the embedded database has its own logins")
	}
	for key, text := range map[string]string{"database.url": d.URL, "database.migrationsUrl": d.MigrationsURL} {
		if text == "" {
			continue
		}
		if u, err := url.Parse(text); err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
			add(key, "must be a postgres:// URL") // its text may hold a password
		}
	}
}

// edgeProblems are those of what callers are held to, most of which the edge itself knows.
func (c *config) edgeProblems(add func(key, format string, args ...any)) {
	for key, n := range map[string]int{"denialsPerSecond": c.Limits.DenialsPerSecond, "denialsAtMost": c.Limits.DenialsAtMost} {
		if n < 0 {
			add("limits."+key, "must not be negative")
		}
	}
	for key, n := range map[string]int{"operationsPerSubject": c.Limits.OperationsPerSubject, "operationsPerTenant": c.Limits.OperationsPerTenant} {
		if n >= int(c.Database.MaxConns) {
			add("limits."+key, "must be below database.maxConns, %d, or one of them has all connections", c.Database.MaxConns)
		}
	}
	err := c.serverConfig().Check()
	if err == nil {
		return
	}
	for line := range strings.Lines(err.Error()) {
		key, problem, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if !strings.HasPrefix(key, "limits.") {
			key = "graphql." + key
		}
		add(key, "%s", problem)
	}
}

func (c *config) authProblems(add func(key, format string, args ...any)) {
	seen := map[string]bool{}
	for i, t := range c.Auth.Tokens {
		key := fmt.Sprintf("auth.tokens[%d]", i)
		if !tokenPattern.MatchString(t.Token) {
			add(key+".token", "must be 1 to 1000 printable ASCII characters without spaces")
		}
		if strings.HasPrefix(t.Token, apitoken.Prefix) || (c.Auth.OIDC != nil && strings.Count(t.Token, ".") == 2) {
			add(key+".token", "has the form of another kind of credential")
		}
		if seen[t.Token] {
			add(key+".token", "is the same as an earlier one")
		}
		seen[t.Token] = true
		if !callerPattern.MatchString(t.Subject) {
			add(key+".subject", "%q must be user:<name>, or service:<name> without a slash", t.Subject)
		}
		for j, g := range t.Groups {
			if !groupPattern.MatchString(g) {
				add(fmt.Sprintf("%s.groups[%d]", key, j), "%q must be a name, or group:<name>", g)
			}
		}
	}
	err := problem.From(authz.CheckBindings(c.bindings()))
	if err == nil {
		return
	}
	issues, _ := err.Details["issues"].([]problem.Issue)
	for _, issue := range issues {
		add("authz."+issue.Path, "%s", issue.Message)
	}
}

func (c *config) providerProblems(add func(key, format string, args ...any)) {
	seen := map[string]bool{}
	for i, e := range c.Providers {
		key := fmt.Sprintf("providers[%d]", i)
		if _, known := drivers()[e.Name]; !known {
			add(key+".name", "there is no driver %q; known are %s", e.Name, strings.Join(slices.Sorted(maps.Keys(drivers())), ", "))
		}
		if seen[e.Name] {
			add(key+".name", "%q is registered twice", e.Name)
		}
		seen[e.Name] = true
		if e.Endpoint != "" {
			if u, err := url.Parse(e.Endpoint); err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.User != nil {
				add(key+".endpoint", "must be an http or https URL without credentials")
			}
		}
		for j, text := range e.AllowNetworks {
			if _, err := netip.ParsePrefix(text); err != nil {
				add(fmt.Sprintf("%s.allowNetworks[%d]", key, j), "%q is not a network such as 10.1.0.0/16", text)
			}
		}
	}
}

func (c *config) bootstrapProblems(add func(key, format string, args ...any)) {
	b := c.Bootstrap
	if b == nil {
		return
	}
	if u, err := url.Parse(b.AgentURL); b.AgentURL != "" && (err != nil || b.AgentURL != "https://"+u.Host || u.Host == "") {
		add("bootstrap.agentURL", "must be the https URL of a host and a port, and nothing else, at which machines reach the agent listener")
	}
	if info, err := os.Stat(b.AgentBinaries); err != nil || !info.IsDir() {
		reason := "is not a directory"
		if errors.Is(err, fs.ErrNotExist) {
			reason = "does not exist"
		}
		add("bootstrap.agentBinaries", "%q, the directory with the bcd binaries, %s", b.AgentBinaries, reason)
	}
	if !trustDomainPattern.MatchString(b.TrustDomain) {
		add("bootstrap.trustDomain", "%q must be a lower-case DNS name", b.TrustDomain)
	}
	if b.TokenTTL < 0 || b.TokenTTL > 24*time.Hour {
		add("bootstrap.tokenTTL", "must be at most 24h")
	}
	for key, d := range map[string]time.Duration{
		"claimVPS": b.Limits.ClaimVPS, "claimMetal": b.Limits.ClaimMetal, "identifying": b.Limits.Identifying,
		"preparing": b.Limits.Preparing, "installing": b.Limits.Installing, "installed": b.Limits.Installed,
	} {
		if d < 0 {
			add("bootstrap.limits."+key, "must not be negative")
		}
	}
	if b.OrdersPerHour != nil && (*b.OrdersPerHour < 0 || *b.OrdersPerHour > 100_000) {
		add("bootstrap.ordersPerHour", "must be 0 to 100000; 0 means no limit")
	}
	if b.KeepFailed < 0 || b.KeepFailed > 7*24*time.Hour {
		add("bootstrap.keepFailed", "must be at most 168h")
	}
	if b.SweepEvery != 0 && (b.SweepEvery < time.Second || b.SweepEvery > 24*time.Hour) {
		add("bootstrap.sweepEvery", "must be 1s to 24h")
	}
	if b.Workers < 0 || b.Workers > 1000 {
		add("bootstrap.workers", "must be 0 to 1000")
	}
}
