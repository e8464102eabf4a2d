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

// Decision is what the policy records of a request.
type Decision struct {
	Level Level
	Omit  StageSet
	// OmitManagedFields removes managedFields from objects.
	OmitManagedFields bool
}

// Policy decides what is recorded of a request. The user is nil before authentication.
type Policy interface {
	Decide(op *requestinfo.Info, u *request.User) Decision
}

// Sink processes events. An event and all that it references do not change until Process returns.
// An error means that the event is lost and that a request that has not begun must be rejected.
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
	t := &Auditor{Config: c, budget: newObjectBudget(c.MaxObjects)}
	if t.Slow == 0 {
		t.Slow = defaultSlow
	}
	t.policy.Store(&c.Policy)
	return t
}

// SetPolicy replaces the policy for later requests. If err is not nil, it keeps the policy and
// records the failed reload.
func (t *Auditor) SetPolicy(p Policy, err error) {
	if err != nil {
		t.Metrics.reloads.WithLabelValues("failure").Inc()
		t.Logger.Error("failed to reload audit policy; keeping the previous one", "error", err)
		return
	}
	t.policy.Store(&p)
	t.Metrics.reloads.WithLabelValues("success").Inc()
	t.Logger.Info("reloaded audit policy")
}

// Arrival describes a request at its arrival.
type Arrival struct {
	ID, URI, UserAgent string
	// Principal is the key under which limits count the request; "" means the principal of its
	// user.
	Principal string
	// Source is the client address if there is only one. Otherwise SourceIPs has all of them.
	Source    string
	SourceIPs []string
}

// ArrivalOf describes an HTTP request.
func ArrivalOf(r *http.Request, id string) Arrival {
	a := Arrival{
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

// Open opens the record of a request. u is nil before authentication. Open returns nil if the
// policy omits the request, and does not call arrived then.
func (t *Auditor) Open(op *requestinfo.Info, u *request.User, arrived func() Arrival) *Record {
	if t == nil {
		return nil
	}
	d := (*t.policy.Load()).Decide(op, u)
	t.Metrics.levels[d.Level].Inc()
	if d.Level == None {
		return nil
	}
	a := arrived()
	p, _ := t.states.Get().(*recordState)
	if p == nil {
		p = &recordState{}
	}
	// Calls on the previous record of the state may still check the generation.
	p.mu.Lock()
	defer p.mu.Unlock()
	p.longRunning = op.LongRunning()
	p.event = Event{
		Level:     d.Level,
		ID:        a.ID,
		URI:       a.URI,
		Verb:      op.Verb,
		User:      u,
		UserAgent: a.UserAgent,
		SourceIPs: a.SourceIPs,
		Received:  time.Now(),
	}
	if a.Source != "" {
		p.sources[0] = a.Source
		p.event.SourceIPs = p.sources[:]
	}
	if op.IsResource {
		p.object = Reference{
			Resource:    op.Resource,
			Namespace:   op.Namespace,
			Name:        op.Name,
			APIGroup:    op.Group,
			APIVersion:  op.Version,
			Subresource: op.Subresource,
		}
		p.event.Object = &p.object
	}
	return &Record{
		auditor:           t,
		principal:         cmp.Or(a.Principal, request.PrincipalOf(u, "")),
		level:             d.Level,
		omit:              d.Omit,
		omitManagedFields: d.OmitManagedFields,
		state:             p,
		generation:        p.generation,
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
	r.update(func(p *recordState) { p.longRunning = true })
}

// Close ends the record of a request that was rejected before authentication.
func (r *Record) Close() { r.close() }

// emit emits an event to all sinks and returns their errors.
func (t *Auditor) emit(ctx context.Context, e *Event) error {
	t.Metrics.events.Inc()
	var errs []error
	for _, s := range t.Sinks {
		if err := s.Process(ctx, e); err != nil {
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

// sourceIP returns the client address of a request if no proxy header names others and the address
// is in canonical form, else "".
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
