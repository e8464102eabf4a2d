package health

import (
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"
)

// Endpoint is one of the health endpoints of a process.
type Endpoint string

// The endpoints. Healthz is deprecated in Kubernetes and kept for old clients.
const (
	Healthz Endpoint = "healthz"
	Livez   Endpoint = "livez"
	Readyz  Endpoint = "readyz"
)

// Endpoints lists all endpoints.
func Endpoints() []Endpoint { return []Endpoint{Healthz, Livez, Readyz} }

// Check returns nil if the component is healthy. It must be quick, and must stop when the request's
// context ends.
type Check func(*http.Request) error

// Config configures a Registry.
type Config struct {
	// LivezGracePeriod is the time after the start in which /livez runs no checks.
	LivezGracePeriod time.Duration
	Logger           *slog.Logger
	// Now replaces time.Now in tests; may be nil.
	Now func() time.Time
}

// Registry holds the checks of one process.
type Registry struct {
	log        *slog.Logger
	now        func() time.Time
	started    time.Time
	livezGrace time.Duration
	slis       *slis

	mu     sync.RWMutex // leaf lock
	checks []check
	states map[Endpoint]loggedState // as last reported
}

// startPatience is how long an endpoint may fail after the start before its failures are logged.
const startPatience = 10 * time.Second

// loggedState is the state of an endpoint at its last log message.
type loggedState struct {
	logged string // the failing checks in the log; empty if none
	passed bool   // the endpoint has passed before
}

// check is a registered check.
type check struct {
	name      string
	probe     Check
	endpoints []Endpoint
	// informational means that a failure is reported but does not fail the endpoint.
	informational bool
}

// New returns a registry with the check "ping". The grace period starts now.
func New(config Config) *Registry {
	if config.Now == nil {
		config.Now = time.Now
	}
	registry := &Registry{
		log:        config.Logger,
		now:        config.Now,
		started:    config.Now(),
		livezGrace: config.LivezGracePeriod,
		slis:       newSLIs(),
		states:     map[Endpoint]loggedState{},
	}
	registry.Add("ping", func(*http.Request) error { return nil })
	return registry
}

// Add appends a check to the given endpoints, or to all if none are given. It panics if an endpoint
// already has a check of that name.
func (r *Registry) Add(name string, run Check, endpoints ...Endpoint) {
	r.addCheck(check{name: name, probe: run, endpoints: endpoints})
}

// AddInformational adds a check whose failure does not make the process unhealthy: its endpoints
// report the failure and pass. The endpoint of the check itself, such as /readyz/NAME, fails.
func (r *Registry) AddInformational(name string, run Check, endpoints ...Endpoint) {
	r.addCheck(check{name: name, probe: run, endpoints: endpoints, informational: true})
}

// addCheck adds a check to its endpoints, by default to all.
func (r *Registry) addCheck(added check) {
	name, endpoints := added.name, added.endpoints
	if len(endpoints) == 0 {
		endpoints = Endpoints()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.checks {
		if c.name == name && slices.ContainsFunc(endpoints, func(e Endpoint) bool { return slices.Contains(c.endpoints, e) }) {
			panic(fmt.Sprintf("health check %q is registered twice", name))
		}
	}
	added.endpoints = slices.Clone(endpoints)
	r.checks = append(r.checks, added)
}

// checksOf returns the checks of an endpoint in the order of registration.
func (r *Registry) checksOf(endpoint Endpoint) []check {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var checks []check
	for _, c := range r.checks {
		if slices.Contains(c.endpoints, endpoint) {
			checks = append(checks, c)
		}
	}
	return checks
}

// Names returns the names of an endpoint's checks in the order of registration.
func (r *Registry) Names(e Endpoint) []string {
	var out []string
	for _, c := range r.checksOf(e) {
		out = append(out, c.name)
	}
	return out
}

// runCheck runs one check for an endpoint.
func (r *Registry) runCheck(e Endpoint, c check, req *http.Request) error {
	if e == Livez && r.now().Before(r.started.Add(r.livezGrace)) {
		return nil
	}
	return c.probe(req)
}

// logFailures logs the failing checks of an endpoint when they differ from those last logged.
// During the start it logs them only if the endpoint still fails after startPatience: a start
// completes many checks, one after the other.
func (r *Registry) logFailures(endpoint Endpoint, names, reasons string) {
	r.mu.Lock()
	previous := r.states[endpoint]
	current := loggedState{passed: previous.passed || names == ""}
	if previous.passed || r.now().Sub(r.started) >= startPatience {
		current.logged = names
	}
	r.states[endpoint] = current
	r.mu.Unlock()
	switch {
	case current.logged == previous.logged:
	case current.logged == "":
		r.log.Info("health endpoint passes again", "endpoint", string(endpoint))
	default:
		r.log.Warn("health endpoint fails", "endpoint", string(endpoint), "checks", names, "reasons", reasons)
	}
}
