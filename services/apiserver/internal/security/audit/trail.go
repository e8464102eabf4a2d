package audit

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
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
	// maxUserAgent is how many characters are told of a User-Agent.
	maxUserAgent = 1024
	// cutText follows what is told of a text that is too long.
	cutText = "...TRUNCATED"
)

// Decision is what is told of a request.
type Decision struct {
	Level Level
	Omit  StageSet
	// OmitManagedFields leaves them out of objects.
	OmitManagedFields bool
}

// Policy decides how much is told of a request.
type Policy interface {
	Decide(op *requestinfo.Info, u *request.User) Decision
}

// Sink takes events; they and all that they point to are its own until Process returns. An error means that the event is lost and that the request must not
// go on, where it has not begun; sinks that promise less count their losses by themselves.
type Sink interface {
	Process(ctx context.Context, e *Event) error
}

// Config of a Trail.
type Config struct {
	Policy  Policy
	Sinks   []Sink
	Metrics *Metrics
	Logger  *slog.Logger
	// MaxObject bounds the JSON of an object that is told, in bytes; MaxObjects those
	// of all requests under way.
	MaxObject, MaxObjects int64
	// Turns are taken for long objects; nil lets everybody go on.
	Turns Turns
	// Slow is from when on it is told where the time of a request went; 0 means 500 ms.
	Slow time.Duration
}

// Trail opens records and hands events to sinks.
type Trail struct {
	Config
	policy atomic.Pointer[Policy]
	room   *room
	pages  sync.Pool // of *page
}

// New makes a trail.
func New(c Config) *Trail {
	t := &Trail{Config: c, room: newRoom(c.MaxObjects)}
	if t.Slow == 0 {
		t.Slow = slow
	}
	t.policy.Store(&c.Policy)
	return t
}

// Follow has another policy decide on requests that come from now on, or tells that a new
// one cannot be used.
func (t *Trail) Follow(p Policy, err error) {
	if err != nil {
		t.Metrics.reloads.WithLabelValues("failure").Inc()
		t.Logger.Error("the audit policy has changed and cannot be used, the one before stays in force", "error", err)
		return
	}
	t.policy.Store(&p)
	t.Metrics.reloads.WithLabelValues("success").Inc()
	t.Logger.Info("the audit policy has changed")
}

// Arrival is what is known of a request when it comes.
type Arrival struct {
	ID, URI, UserAgent string
	// Principal is what limits count the request under, "" for that of its user.
	Principal string
	// Source is where it comes from, where that is one address alone, else SourceIPs.
	Source    string
	SourceIPs []string
}

// Arrived is a request over HTTP.
func Arrived(r *http.Request, id string) Arrival {
	a := Arrival{ID: id, URI: r.URL.RequestURI(), UserAgent: userAgent(r), Principal: request.Principal(r.Context()), Source: source(r)}
	if a.Source == "" {
		a.SourceIPs = sources(r)
	}
	return a
}

// Open begins the record of a request of a user, who is nil when nobody knows; nil when nothing is told of it. What is known of it
// is asked for only when it is told.
func (t *Trail) Open(op *requestinfo.Info, u *request.User, arrived func() Arrival) *Record {
	if t == nil {
		return nil
	}
	d := (*t.policy.Load()).Decide(op, u)
	t.Metrics.levels[d.Level].Inc()
	if d.Level == None {
		return nil
	}
	a := arrived()
	p, _ := t.pages.Get().(*page)
	if p == nil {
		p = &page{}
	}
	// Who had the page before may still look whether it is his turn.
	p.mu.Lock()
	defer p.mu.Unlock()
	p.long = op.LongRunning()
	p.event = Event{Level: d.Level, ID: a.ID, URI: a.URI, Verb: op.Verb, User: u, UserAgent: a.UserAgent, SourceIPs: a.SourceIPs, Received: time.Now()}
	if a.Source != "" {
		p.sources[0], p.event.SourceIPs = a.Source, p.sources[:]
	}
	if op.IsResource {
		p.object = Reference{
			Resource: op.Resource, Namespace: op.Namespace, Name: op.Name, APIGroup: op.Group, APIVersion: op.Version, Subresource: op.Subresource,
		}
		p.event.Object = &p.object
	}
	return &Record{trail: t, principal: cmp.Or(a.Principal, request.PrincipalOf(u, "")), level: d.Level, omit: d.Omit, unowned: d.OmitManagedFields, page: p, turn: p.turn}
}

// Receive tells of a request before it is worked on. An error means that it must not be.
func (r *Record) Receive(ctx context.Context) error {
	if r == nil {
		return nil
	}
	err := r.tell(ctx, RequestReceived)
	if err != nil {
		r.trail.Metrics.rejected.Inc()
		r.close()
	}
	return err
}

// Refuse has the record tell of a request that nobody is known for, which is told once,
// with its answer. Close ends it.
func (r *Record) Refuse() {
	r.change(func(p *page) { p.long = true })
}

// Close ends the record of a request that was refused.
func (r *Record) Close() { r.close() }

func (t *Trail) process(ctx context.Context, e *Event) error {
	t.Metrics.events.Inc()
	var errs []error
	for _, s := range t.Sinks {
		if err := s.Process(ctx, e); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func userAgent(r *http.Request) string {
	ua := r.UserAgent()
	if len(ua) > maxUserAgent {
		return ua[:maxUserAgent] + cutText
	}
	return ua
}

// source is the address that a request comes from, where no proxy tells of others and it
// is written as it is told; else "".
func source(r *http.Request) string {
	if r.Header["X-Forwarded-For"] != nil || r.Header["X-Real-Ip"] != nil {
		return ""
	}
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return ""
	}
	ip, err := netip.ParseAddr(host)
	var written [64]byte
	if err != nil || ip.Zone() != "" || ip.Is4In6() || string(ip.AppendTo(written[:0])) != host {
		return ""
	}
	return host
}

func sources(r *http.Request) []string {
	ips := utilnet.SourceIPs(r)
	out := make([]string, len(ips))
	for i := range ips {
		out[i] = ips[i].String()
	}
	return out
}
