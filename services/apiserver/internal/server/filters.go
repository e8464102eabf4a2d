package server

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/httpstream"

	"binnacle/libs/api"
	"binnacle/libs/serving"
	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/security/authz"
	"binnacle/services/apiserver/internal/status"
)

// longQuery is the size in bytes from which a query is not read for LongRunning.
const longQuery = 1 << 10

// LongRunning tells requests that last as long as the client likes, before the
// filters have run, and before large ones have a turn.
func LongRunning(kinds *apiset.Live, foreign Foreign) func(*http.Request) bool {
	return func(r *http.Request) bool {
		if len(r.URL.RawQuery) >= longQuery {
			short, u := *r, *r.URL
			u.RawQuery = ""
			if v, ok := api.Parameter(r.URL.RawQuery, "watch"); ok { // nothing else matters
				u.RawQuery = url.Values{"watch": {v}}.Encode()
			}
			short.URL, r = &u, &short
		}
		op := foreign.Resolve(r, kinds.Current())
		return op.LongRunning() || op.Foreign != nil && httpstream.IsUpgradeRequest(r)
	}
}

// resolve decides what the request does, once; settle may know better later.
func (c *Config) resolve(next http.Handler) http.Handler {
	crowded := c.observe(c.securityHeaders(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.refuseBy(w, r, func(w http.ResponseWriter, _ *http.Request) { tooMany(w, 1) })
	})))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		op := c.operationOf(r)
		if op == nil {
			crowded.ServeHTTP(w, r.WithContext(requestinfo.Carry(r.Context(), c.beginningOf(r))))
			return
		}
		next.ServeHTTP(w, r.WithContext(requestinfo.Carry(r.Context(), op)))
	})
}

// operationOf is what a request is for; nil when it is large and did not get its turn.
func (c *Config) operationOf(r *http.Request) *requestinfo.Info {
	if len(r.URL.Path)+len(r.URL.RawQuery) >= largeTarget {
		ctx, cancel := context.WithTimeout(r.Context(), bodyWait(r.Context()))
		defer cancel()
		if c.LargeRequests.Enter(r.WithContext(ctx)) != nil {
			return nil
		}
		defer c.LargeRequests.Leave()
	}
	return c.Foreign.Resolve(r, c.Kinds.Current())
}

// beginningOf is what a request seems to be for, by as much of its path as is read without a turn.
// It is told of, and not done.
func (c *Config) beginningOf(r *http.Request) *requestinfo.Info {
	short, u := *r, *r.URL
	u.Path, u.RawQuery = u.Path[:min(len(u.Path), largeTarget)], ""
	short.URL = &u
	return c.Foreign.Resolve(&short, c.Kinds.Current())
}

func (c *Config) securityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		id := auditID(r)
		h.Set("Audit-Id", id)
		request.SetTracedID(r.Context(), id)
		h.Set("Cache-Control", "no-cache, private")
		if len(c.StrictTransportSecurity) > 0 {
			h.Set("Strict-Transport-Security", strings.Join(c.StrictTransportSecurity, "; "))
		}
		next.ServeHTTP(w, r)
	})
}

// maxNegotiated is how many bytes the header fields may have that say which forms are sent and
// wanted: clients send hundreds, and to read them takes some 100 µs a KiB, whoever asks.
const maxNegotiated = 8 << 10

// negotiable refuses requests whose forms take long to negotiate.
func (c *Config) negotiable(next http.Handler) http.Handler {
	fields := []string{"Accept", "Content-Type", "Accept-Encoding"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		n := 0
		for _, name := range fields {
			for _, value := range r.Header[name] {
				n += len(value)
			}
		}
		if n <= maxNegotiated {
			next.ServeHTTP(w, r)
			return
		}
		for _, name := range fields {
			r.Header.Del(name)
		}
		c.refuse(w, r, status.LongFields(fields, maxNegotiated))
	})
}

// maxAuditID bounds the audit id of a client in bytes, because every audit event repeats it.
const maxAuditID = 1 << 10

// auditID returns the id that the client gave the request, or a new one.
func auditID(r *http.Request) string {
	if id := r.Header.Get("Audit-Id"); id != "" && len(id) <= maxAuditID {
		return id
	}
	return audit.NewID()
}

// goaway closes the connection of a few HTTP/2 requests after their answer.
func (c *Config) goaway(next http.Handler) http.Handler {
	if c.GoawayChance <= 0 {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor == 2 && rand.Float64() < c.GoawayChance {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

// reloading refuses what is about objects while everything is loaded anew, which
// takes as long as a start.
func (c *Config) reloading(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c.Reloading != nil && requestinfo.From(r.Context()).IsResource && c.Reloading(requestinfo.From(r.Context())) {
			w.Header().Set("Retry-After", "1")
			c.refuse(w, r, status.Reloading())
			return
		}
		next.ServeHTTP(w, r)
	})
}

// deadline bounds the request by --request-timeout, or less where the client
// asks for less. The client of a watch has to go on reading.
func (c *Config) deadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if op := requestinfo.From(r.Context()); op.LongRunning() {
			if op.Verb == "watch" {
				serving.LimitStall(w)
			}
			next.ServeHTTP(w, r)
			return
		}
		limit := c.RequestTimeout
		if s, _ := api.Parameter(r.URL.RawQuery, "timeout"); s != "" {
			d, err := time.ParseDuration(s)
			switch {
			case err != nil:
				c.refuse(w, r, apierrors.NewBadRequest(fmt.Sprintf("invalid timeout specified in the request URL - parse error: %v", err)))
				return
			case d > 0 && d < limit:
				limit = d
			}
		}
		request.SetLife(r.Context())
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func (c *Config) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		begin := time.Now()
		var span tracing.Span
		if c.Traces != nil {
			var ctx context.Context
			ctx, span = c.authentication(r.Context())
			r = r.WithContext(ctx)
		}
		u, err := c.Authenticator.Authenticate(r)
		warnOf(w, r)
		span.End()
		request.WaitsFrom(r.Context()).Authenticated(noted(c.Metrics.filters.authentication, begin))
		if u == nil {
			if err != nil {
				c.Logger.Debug("authentication failed", "path", r.URL.Path, "error", err)
			}
			if errors.Is(err, webhookclient.ErrCrowded) { // who it is, nobody was asked
				tooMany(w, 1)
				return
			}
			c.refuse(w, r, apierrors.NewUnauthorized("Unauthorized"))
			return
		}
		request.SetPrincipal(r.Context(), request.PrincipalOf(u, r.RemoteAddr))
		if !request.SetUser(r.Context(), u) {
			r = r.WithContext(request.WithUser(r.Context(), u))
		}
		next.ServeHTTP(w, r)
	})
}

// Annotations of what was decided, and why.
const (
	decisionAnnotation = "authorization.k8s.io/decision"
	reasonAnnotation   = "authorization.k8s.io/reason"
)

func (c *Config) authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		attrs := authz.AttributesOf(request.UserFrom(ctx), requestinfo.From(ctx))
		rec, begin := audit.From(ctx), time.Now()
		asking, span := c.step(ctx, "authorization")
		d, reason, err := c.Authorizer.Authorize(asking, attrs)
		span.End()
		took := time.Since(begin)
		rec.Spent(audit.Authorization, took)
		if d == authz.Allow {
			rec.Annotate(decisionAnnotation, "allow")
			rec.Annotate(reasonAnnotation, reason)
			c.Metrics.filters.authorization.Observe(took.Seconds())
			next.ServeHTTP(w, r)
			return
		}
		if err != nil {
			c.Logger.Warn("authorization failed", "path", r.URL.Path, "error", err)
			rec.Annotate(reasonAnnotation, "internal error")
			if errors.Is(err, webhookclient.ErrCrowded) {
				tooMany(w, 1)
				return
			}
			undecided(w, r, err)
			return
		}
		rec.Annotate(decisionAnnotation, "forbid")
		rec.Annotate(reasonAnnotation, reason)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		c.Responder.Error(w, r, authz.Forbidden(attrs, reason))
	})
}

// undecided answers a request that nobody could decide on: it is not refused, and
// may be tried again. The form is that of Kubernetes, which is plain text; what
// would look like markup in it is not.
func undecided(w http.ResponseWriter, r *http.Request, err error) {
	text := fmt.Sprintf("Internal Server Error: %q: %v", r.RequestURI, err)
	http.Error(w, strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text), http.StatusInternalServerError)
}

// warnOf sets the Warning headers before the request is handled. Handlers that
// write plain text do not set them.
func warnOf(w http.ResponseWriter, r *http.Request) {
	if ws := request.WarningsFrom(r.Context()); ws != nil {
		if headers := ws.Headers(); headers != nil {
			w.Header()["Warning"] = headers
		}
	}
}

func (c *Config) warnings(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !request.SetWarnings(r.Context()) {
			ctx, _ := request.WithWarnings(r.Context())
			r = r.WithContext(ctx)
		}
		next.ServeHTTP(w, r)
	})
}
