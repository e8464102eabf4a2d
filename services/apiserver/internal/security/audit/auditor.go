package audit

import (
	"cmp"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"

	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
)

const (
	// maxUserAgent is the maximum length of a recorded User-Agent in bytes.
	maxUserAgent = 1024
	// truncationMark follows a truncated text.
	truncationMark = "...TRUNCATED"
)

// Decision states what the policy records of a request.
type Decision struct {
	Level Level
	// Omit contains the stages at which no event is emitted.
	Omit StageSet
	// OmitManagedFields removes managedFields from objects.
	OmitManagedFields bool
}

// Policy decides what is recorded of a request.
type Policy interface {
	Decide(op *requestinfo.Info, u *request.User) Decision
}

// Sink processes events. An event and all that it references do not change until Process returns.
// An error means that the event is lost and that a request that has not started must be rejected.
// Sinks with weaker guarantees return nil and count their losses.
type Sink interface {
	Process(ctx context.Context, e *Event) error
}

// Config configures an Auditor.
type Config struct {
	Policy  Policy
	Sinks   []Sink
	Metrics *Metrics
	Logger  *slog.Logger
	// MaxObject is the maximum size of a recorded object's JSON in bytes. MaxObjects is the maximum
	// of all requests in progress together.
	MaxObject, MaxObjects int64
	// Limiter limits concurrent work on large objects; nil means no limit.
	Limiter Limiter
	// Slow is the duration from which events have latency annotations; 0 means 500 ms.
	Slow time.Duration
}

// Auditor opens records and emits events to sinks.
type Auditor struct {
	Config
	policy atomic.Pointer[Policy]
	budget *objectBudget
	states sync.Pool // of *recordState
}

// New returns an auditor.
func New(c Config) *Auditor {
	auditor := &Auditor{Config: c, budget: &objectBudget{free: c.MaxObjects, held: map[string]int64{}}}
	if auditor.Slow == 0 {
		auditor.Slow = defaultSlow
	}
	auditor.policy.Store(&c.Policy)
	return auditor
}

// SetPolicy replaces the policy for later requests. If err is not nil, it keeps the policy and
// records the failed reload.
func (auditor *Auditor) SetPolicy(policy Policy, err error) {
	if err != nil {
		auditor.Metrics.reloads.WithLabelValues("failure").Inc()
		auditor.Logger.Error("failed to reload audit policy; keeping the previous one", "error", err)
		return
	}
	auditor.policy.Store(&policy)
	auditor.Metrics.reloads.WithLabelValues("success").Inc()
	auditor.Logger.Info("reloaded audit policy")
}

// ReceivedRequest describes a request at its arrival.
type ReceivedRequest struct {
	ID, URI, UserAgent string
	// Principal is the key under which limits count the request; "" means the principal of its
	// user.
	Principal string
	// Source is the client address if there is only one. Otherwise SourceIPs has all of them.
	Source    string
	SourceIPs []string
}

// ReceivedRequestOf describes an HTTP request.
func ReceivedRequestOf(r *http.Request, id string) ReceivedRequest {
	a := ReceivedRequest{
		ID:        id,
		URI:       r.URL.RequestURI(),
		UserAgent: userAgent(r),
		Principal: request.Principal(r.Context()),
		Source:    sourceIP(r),
	}
	if a.Source == "" {
		a.SourceIPs = sourceIPs(r)
	}
	return a
}

// Open opens the record of a request. user is nil before authentication. arrived describes the
// request. If the policy does not record the request, Open returns nil and does not call arrived.
func (auditor *Auditor) Open(info *requestinfo.Info, user *request.User, arrived func() ReceivedRequest) *Record {
	if auditor == nil {
		return nil
	}

	// 1. Decide whether the request is recorded.
	decision := (*auditor.policy.Load()).Decide(info, user)
	auditor.Metrics.levels[decision.Level].Inc()
	if decision.Level == None {
		return nil
	}

	// 2. Fill a state with what is known at the arrival.
	arrival := arrived()
	state, _ := auditor.states.Get().(*recordState)
	if state == nil {
		state = &recordState{}
	}
	state.mu.Lock() // late calls on the previous record of the state may still read its generation
	defer state.mu.Unlock()
	state.longRunning = info.LongRunning()
	state.event = Event{
		Level:     decision.Level,
		ID:        arrival.ID,
		URI:       arrival.URI,
		Verb:      info.Verb,
		User:      user,
		UserAgent: arrival.UserAgent,
		SourceIPs: arrival.SourceIPs,
		Received:  time.Now(),
	}
	if arrival.Source != "" {
		state.sources[0] = arrival.Source
		state.event.SourceIPs = state.sources[:]
	}
	if info.IsResource {
		state.object = Reference{
			Resource:    info.Resource,
			Namespace:   info.Namespace,
			Name:        info.Name,
			APIGroup:    info.Group,
			APIVersion:  info.Version,
			Subresource: info.Subresource,
		}
		state.event.Object = &state.object
	}
	return &Record{
		auditor:           auditor,
		principal:         cmp.Or(arrival.Principal, request.PrincipalOf(user, "")),
		level:             decision.Level,
		omit:              decision.Omit,
		omitManagedFields: decision.OmitManagedFields,
		state:             state,
		generation:        state.generation,
	}
}

// Receive emits the RequestReceived event. After an error the request must be rejected.
func (r *Record) Receive(ctx context.Context) error {
	if r == nil {
		return nil
	}
	err := r.emit(ctx, RequestReceived)
	if err != nil {
		r.auditor.Metrics.rejected.Inc()
		r.close()
	}
	return err
}

// SetUnauthenticated marks a request that is rejected before authentication. Its only event is
// emitted with the response. Close ends the record.
func (r *Record) SetUnauthenticated() {
	r.update(func(state *recordState) { state.longRunning = true })
}

// Close ends the record of a request that was rejected before authentication.
func (r *Record) Close() { r.close() }

// emitToSinks emits an event to all sinks and returns their errors.
func (auditor *Auditor) emitToSinks(ctx context.Context, event *Event) error {
	auditor.Metrics.events.Inc()
	var errs []error
	for _, sink := range auditor.Sinks {
		if err := sink.Process(ctx, event); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// userAgent returns the User-Agent of a request, at most maxUserAgent bytes of it.
func userAgent(r *http.Request) string {
	ua := r.UserAgent()
	if len(ua) > maxUserAgent {
		return ua[:maxUserAgent] + truncationMark
	}
	return ua
}

// sourceIP returns the client address of a request. It returns "" if a proxy header names other
// addresses, or if the address is not in canonical form.
func sourceIP(r *http.Request) string {
	if r.Header["X-Forwarded-For"] != nil || r.Header["X-Real-Ip"] != nil {
		return ""
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || ip.Zone() != "" || ip.Is4In6() {
		return ""
	}
	var canonical [64]byte
	if string(ip.AppendTo(canonical[:0])) != host {
		return ""
	}
	return host
}

// sourceIPs returns the addresses in the proxy headers of a request, and its client address.
func sourceIPs(r *http.Request) []string {
	ips := utilnet.SourceIPs(r)
	out := make([]string, len(ips))
	for i := range ips {
		out[i] = ips[i].String()
	}
	return out
}

// NewID returns a new request id, a version 4 UUID. It is unique but not secret, so it does not
// need the system's random source.
func NewID() string {
	var id [16]byte
	binary.LittleEndian.PutUint64(id[:8], rand.Uint64())
	binary.LittleEndian.PutUint64(id[8:], rand.Uint64())
	id[6] = id[6]&0x0f | 0x40 // version 4
	id[8] = id[8]&0x3f | 0x80 // the variant of RFC 9562
	var text [36]byte
	hex.Encode(text[:8], id[:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:], id[10:])
	for _, i := range []int{8, 13, 18, 23} {
		text[i] = '-'
	}
	return string(text[:])
}
