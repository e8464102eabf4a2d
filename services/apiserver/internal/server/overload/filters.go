package overload

import (
	"context"
	"net/http"

	"binnacle/libs/limit"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/flowcontrol"
	"binnacle/services/apiserver/internal/server/telemetry"
)

// Options configure Filters.
type Options struct {
	Bounds Bounds
	// Flow is the flow control. Width returns how many seats a request takes. Without Flow,
	// MaxInFlight and MaxMutatingInFlight limit requests.
	Flow  *flowcontrol.Controller
	Width func(op *requestinfo.Info, maximum int) flowcontrol.Width
	// MaxInFlight and MaxMutatingInFlight are the maximum numbers of concurrent reads and writes;
	// 0 means no limit.
	MaxInFlight, MaxMutatingInFlight int
	// LargeRequests limits how many large requests are processed at the same time.
	LargeRequests *limit.Queue[string]
}

// Bounds are the limits that all requests share. A limit of 0 is no limit.
type Bounds struct {
	// BodyBytesPerCPU is the memory in bytes, for each CPU, that the bodies of one priority level
	// may occupy together. MinBodyBytes is the minimum.
	BodyBytesPerCPU, MinBodyBytes int
	// LargeBytesPerCPU is how many bytes of large bodies are worked on at a time, for each
	// CPU but one, which remains for other requests.
	LargeBytesPerCPU int
	// SuspendedBytes is the size in bytes of the large bodies of requests that wait longer than a
	// second for another party. Their objects stay in memory, where they are ten times as large.
	SuspendedBytes int
	// WaitingBodies is the maximum number of bodies of one principal that wait for bytes.
	WaitingBodies int
	// Stalled is the number of stalled responses that may release their seats at the same time.
	// Each one holds a buffer and the objects that it shows.
	Stalled int
	// NegotiationFields is the maximum total size in bytes of the content negotiation header
	// fields. Clients send a few hundred bytes. Parsing takes about 100 µs per KiB, before the
	// client is authenticated.
	NegotiationFields int
}

// Filters holds the filters that limit requests.
type Filters struct {
	options   Options
	telemetry *telemetry.Filters
}

// New returns the filters. They record waits with t.
func New(options Options, recorders *telemetry.Filters) *Filters {
	return &Filters{options: options, telemetry: recorders}
}

// WithWork adds the work of the request, which the limits of large requests count.
func (f *Filters) WithWork(next http.Handler) http.Handler {
	limits := newWorkLimits(f.options.Bounds, f.options.LargeRequests)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request.FromContext(r.Context()).Work = &work{limits: limits}
		next.ServeHTTP(w, r)
	})
}

// WithLimit queues requests by flow control. Without flow control it limits requests in flight.
func (f *Filters) WithLimit(next http.Handler) http.Handler {
	if f.options.Flow != nil {
		return f.withFlowControl(next)
	}
	return f.withInFlightLimit(next)
}

// AdmitURL waits for a permit to resolve the URL of a request if the URL is large. It returns false
// if no permit became free in time.
func (f *Filters) AdmitURL(r *http.Request) (release func(), ok bool) {
	if len(r.URL.Path)+len(r.URL.RawQuery) < LargeURL {
		return func() {}, true
	}
	ctx, cancel := context.WithTimeout(r.Context(), maxBodyWait(r.Context()))
	defer cancel()
	permit := limit.Claim[string]{Key: request.PrincipalOf(nil, r.RemoteAddr)}
	if f.options.LargeRequests.Acquire(ctx, permit) != nil {
		return nil, false
	}
	return func() { f.options.LargeRequests.Release(permit) }, true
}

// AdmitHeaders waits until the request may work on size bytes of header fields, if they are large.
// It returns false if no permit became free in time. The caller calls release in either case.
func AdmitHeaders(ctx context.Context, size int) (release func(), ok bool) {
	if size < LargeURL {
		return func() {}, true
	}
	work := workFrom(ctx)
	return work.releaseWork, work.Estimate(ctx, largeBody)
}
