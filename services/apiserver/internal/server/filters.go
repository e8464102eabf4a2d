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
	"binnacle/libs/limit"
	"binnacle/libs/serving/exchange"
	"binnacle/libs/tracing"
	"binnacle/services/apiserver/internal/api/apiset"
	"binnacle/services/apiserver/internal/api/requestinfo"
	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/rest/responsewriters"
	"binnacle/services/apiserver/internal/security/audit"
	"binnacle/services/apiserver/internal/security/authz"
	"binnacle/services/apiserver/internal/server/overload"
	"binnacle/services/apiserver/internal/server/routing"
	"binnacle/services/apiserver/internal/server/telemetry"
	"binnacle/services/apiserver/internal/status"
)

// maxParsedQuery is the size in bytes up to which LongRunning parses a query.
const maxParsedQuery = 1 << 10

// LongRunning returns a function that reports whether a request is long-running. The function needs
// no other filter to run first. It does not parse long queries, because it runs before large
// requests need a permit.
func LongRunning(kinds *apiset.Live, delegates routing.Delegates) func(*http.Request) bool {
	return func(r *http.Request) bool {
		if len(r.URL.RawQuery) >= maxParsedQuery {
			short, shortURL := *r, *r.URL
			shortURL.RawQuery = ""
			if watch, ok := api.Parameter(r.URL.RawQuery, "watch"); ok { // only this parameter matters
				shortURL.RawQuery = url.Values{"watch": {watch}}.Encode()
			}
			short.URL = &shortURL
			r = &short
		}
		info := delegates.Resolve(r, kinds.Current())
		return info.LongRunning() || info.Delegate != nil && httpstream.IsUpgradeRequest(r)
	}
}

// withRequestInfo returns the filter that attaches the state of the request and resolves its request
// info. Only withUnknownResource replaces that info later.
func (c *Config) withRequestInfo(protection *overload.Filters) func(next http.Handler) http.Handler {
	reject := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.rejectWith(w, r, func(w http.ResponseWriter, _ *http.Request) { overload.TooManyRequests(w, 1) })
	})
	overloaded := c.telemetryFilters().WithMetrics(c.withSecurityHeaders(reject))
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, state := request.Derive(r.Context())
			state.WaitTimes = &request.WaitTimes{}
			state.Principal = request.PrincipalOf(nil, r.RemoteAddr)
			release, ok := protection.AdmitURL(r)
			if !ok {
				state.Info = c.truncatedRequestInfo(r)
				overloaded.ServeHTTP(w, r.WithContext(ctx))
				return
			}
			state.Info = c.requestInfo(r, release)
			next.ServeHTTP(w, r.WithContext(ctx))
		})
	}
}

// requestInfo resolves the request info, and then releases the permit for the URL.
func (c *Config) requestInfo(r *http.Request, release func()) *requestinfo.Info {
	defer release()
	return c.Delegates.Resolve(r, c.Kinds.Current())
}

// truncatedRequestInfo resolves the request info from the part of the path that needs no permit.
// It serves metrics and audit of a rejected request, and is never executed.
func (c *Config) truncatedRequestInfo(r *http.Request) *requestinfo.Info {
	short, shortURL := *r, *r.URL
	shortURL.Path = shortURL.Path[:min(len(shortURL.Path), overload.LargeURL)]
	shortURL.RawQuery = ""
	short.URL = &shortURL
	return c.Delegates.Resolve(&short, c.Kinds.Current())
}

// withSecurityHeaders sets the header fields that every response has, even a rejection.
func (c *Config) withSecurityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		header := w.Header()
		requestAuditID := auditID(r)
		header.Set("Audit-Id", requestAuditID)
		request.FromContext(r.Context()).TracedID = requestAuditID[:min(len(requestAuditID), request.MaxTracedID)]
		header.Set("Cache-Control", "no-cache, private")
		if len(c.StrictTransportSecurity) > 0 {
			header.Set("Strict-Transport-Security", strings.Join(c.StrictTransportSecurity, "; "))
		}
		next.ServeHTTP(w, r)
	})
}

// withNegotiationLimit rejects requests whose negotiation header fields are too long.
func (c *Config) withNegotiationLimit(next http.Handler) http.Handler {
	maximum := c.Overload.Bounds.NegotiationFields
	fields := []string{"Accept", "Content-Type", "Accept-Encoding"}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		size := 0
		for _, name := range fields {
			for _, value := range r.Header[name] {
				size += len(value)
			}
		}
		if size <= maximum || maximum == 0 {
			next.ServeHTTP(w, r)
			return
		}
		for _, name := range fields { // the rejection must not parse them
			r.Header.Del(name)
		}
		c.reject(w, r, status.LongFields(fields, maximum))
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

// withGoaway closes the connection of a random fraction of HTTP/2 requests after the response.
func (c *Config) withGoaway(next http.Handler) http.Handler {
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

// withReloadCheck rejects requests for a resource whose cache is being reloaded. A reload takes as
// long as the load at startup.
func (c *Config) withReloadCheck(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info := requestinfo.FromContext(r.Context())
		if c.Reloading != nil && info.IsResource && c.Reloading(info) {
			w.Header().Set("Retry-After", "1")
			c.reject(w, r, status.Reloading())
			return
		}
		next.ServeHTTP(w, r)
	})
}

// withDeadline sets the deadline of the request to RequestTimeout, or less if the client asks for
// less. A long-running request has no deadline here, but the client of a watch must keep reading.
func (c *Config) withDeadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request.FromContext(r.Context()).Lifetime = r.Context()
		info := requestinfo.FromContext(r.Context())
		if info.LongRunning() {
			if info.Verb == "watch" {
				exchange.LimitStall(w)
			}
			next.ServeHTTP(w, r)
			return
		}
		limit := c.RequestTimeout
		if timeout, _ := api.Parameter(r.URL.RawQuery, "timeout"); timeout != "" {
			parsed, err := time.ParseDuration(timeout)
			isIgnored := info.Verb == "watch" || info.LooksLongRunning() // Kubernetes does not read it
			switch {
			case err != nil && isIgnored:
			case err != nil:
				c.reject(w, r, apierrors.NewBadRequest(fmt.Sprintf("invalid timeout specified in the request URL - %v", err)))
				return
			case parsed > 0 && parsed < limit:
				limit = parsed
			}
		}
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// withAuthentication sets the user and the principal of the request, or rejects it with 401.
func (c *Config) withAuthentication(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		var span tracing.Span
		if c.Traces != nil {
			var ctx context.Context
			ctx, span = c.telemetryFilters().BeginAuthenticationSpan(r.Context())
			r = r.WithContext(ctx)
		}
		user, err := c.Authenticator.Authenticate(r)
		responsewriters.SendWarnings(w, r) // handlers that write plain text do not send them
		span.End()
		state := request.FromContext(r.Context())
		state.AuthenticationTime = telemetry.ObserveSince(c.Metrics.Filters.Authentication, start)
		if user == nil {
			if err != nil {
				c.Logger.Debug("authentication failed", "path", r.URL.Path, "error", err)
			}
			if errors.Is(err, limit.ErrFull) { // authentication did not happen
				overload.TooManyRequests(w, 1)
				return
			}
			c.reject(w, r, apierrors.NewUnauthorized("Unauthorized"))
			return
		}
		state.User = user
		state.Principal = request.PrincipalOf(user, r.RemoteAddr)
		next.ServeHTTP(w, r)
	})
}

// Audit annotations of the authorization decision and its reason.
const (
	decisionAnnotation = "authorization.k8s.io/decision"
	reasonAnnotation   = "authorization.k8s.io/reason"
)

// withAuthorization rejects requests that the authorizer does not allow.
func (c *Config) withAuthorization(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		attrs := authz.AttributesOf(request.UserFrom(ctx), requestinfo.FromContext(ctx))
		record := audit.FromContext(ctx)

		start := time.Now()
		spanCtx, span := c.telemetryFilters().BeginSpan(ctx, "authorization")
		decision, reason, err := c.Authorizer.Authorize(spanCtx, attrs)
		span.End()
		elapsed := time.Since(start)
		record.AddDuration(audit.Authorization, elapsed)

		if decision == authz.Allow {
			record.Annotate(decisionAnnotation, "allow")
			record.Annotate(reasonAnnotation, reason)
			c.Metrics.Filters.Authorization.Observe(elapsed.Seconds())
			next.ServeHTTP(w, r)
			return
		}
		if err != nil {
			c.Logger.Warn("authorization failed", "path", r.URL.Path, "error", err)
			record.Annotate(reasonAnnotation, "internal error")
			if errors.Is(err, limit.ErrFull) {
				overload.TooManyRequests(w, 1)
				return
			}
			writeInternalError(w, r, err)
			return
		}
		record.Annotate(decisionAnnotation, "forbid")
		record.Annotate(reasonAnnotation, reason)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		c.Responder.Error(w, r, authz.Forbidden(attrs, reason))
	})
}

// writeInternalError responds to a request for which a filter failed. The client may retry it. The
// text has the format of Kubernetes, plain text with escaped markup.
func writeInternalError(w http.ResponseWriter, r *http.Request, err error) {
	text := fmt.Sprintf("Internal Server Error: %q: %v", status.Truncate(r.RequestURI, status.MaxMessage), err)
	http.Error(w, strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(text), http.StatusInternalServerError)
}

// withWarnings adds the list in which later filters and handlers collect warnings.
func (c *Config) withWarnings(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		request.FromContext(r.Context()).Warnings = &request.Warnings{}
		next.ServeHTTP(w, r)
	})
}
