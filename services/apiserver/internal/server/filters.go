package server

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/google/uuid"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"binnacle/libs/api"
	"binnacle/services/apiserver/internal/authz"
	"binnacle/services/apiserver/internal/request"
)

// LongRunning tells requests that last as long as the client likes.
func LongRunning(i *request.Info) bool {
	if i.Verb == "watch" || i.Verb == "proxy" {
		return true
	}
	switch i.Subresource {
	case "attach", "exec", "proxy", "log", "portforward":
		return true
	}
	return false
}

// IsLongRunning is LongRunning before the filters have run.
func IsLongRunning(r *http.Request) bool {
	if i := request.InfoFrom(r.Context()); i != nil {
		return LongRunning(i)
	}
	return LongRunning(request.Parse(r))
}

func (c *Config) requestInfo(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		next.ServeHTTP(w, r.WithContext(request.WithInfo(r.Context(), request.Parse(r))))
	})
}

func (c *Config) securityHeaders(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Audit-Id", auditID(r))
		h.Set("Cache-Control", "no-cache, private")
		if len(c.StrictTransportSecurity) > 0 {
			h.Set("Strict-Transport-Security", strings.Join(c.StrictTransportSecurity, "; "))
		}
		next.ServeHTTP(w, r)
	})
}

// auditID is the id that the client gave the request, or a new one.
func auditID(r *http.Request) string {
	if id := r.Header.Get("Audit-Id"); id != "" && len(id) <= 64 {
		return id
	}
	return uuid.NewString()
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

// cors lets browsers call from the origins allowed.
func (c *Config) cors() (func(http.Handler) http.Handler, error) {
	var patterns []*regexp.Regexp
	for _, o := range c.AllowedOrigins {
		re, err := regexp.Compile(o)
		if err != nil {
			return nil, fmt.Errorf("--cors-allowed-origins: %w", err)
		}
		patterns = append(patterns, re)
	}
	return func(next http.Handler) http.Handler {
		if len(patterns) == 0 {
			return next
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			origin := r.Header.Get("Origin")
			for _, re := range patterns {
				if origin == "" || !re.MatchString(origin) {
					continue
				}
				h := w.Header()
				h.Set("Access-Control-Allow-Origin", origin)
				h.Set("Access-Control-Allow-Methods", "POST, GET, OPTIONS, PUT, DELETE, PATCH")
				h.Set("Access-Control-Allow-Headers", "Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since")
				h.Set("Access-Control-Expose-Headers", "Date")
				h.Set("Access-Control-Allow-Credentials", "true")
				if r.Method == http.MethodOptions {
					w.WriteHeader(http.StatusNoContent)
					return
				}
				break
			}
			next.ServeHTTP(w, r)
		})
	}, nil
}

// deadline bounds the request by --request-timeout, or less where the client
// asks for less.
func (c *Config) deadline(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if LongRunning(request.InfoFrom(r.Context())) {
			next.ServeHTTP(w, r)
			return
		}
		limit := c.RequestTimeout
		if s := r.URL.Query().Get("timeout"); s != "" {
			d, err := time.ParseDuration(s)
			switch {
			case err != nil:
				c.Responder.Error(w, r, apierrors.NewBadRequest(fmt.Sprintf("invalid timeout specified in the request URL - parse error: %v", err)))
				return
			case d > 0 && d < limit:
				limit = d
			}
		}
		ctx, cancel := context.WithTimeout(r.Context(), limit)
		defer cancel()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

func (c *Config) authenticate(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		u, err := c.Authenticator.Authenticate(r)
		if u == nil {
			if err != nil {
				c.Logger.Debug("authentication failed", "path", r.URL.Path, "error", err)
			}
			c.Responder.Error(w, r, apierrors.NewUnauthorized("Unauthorized"))
			return
		}
		next.ServeHTTP(w, r.WithContext(request.WithUser(r.Context(), u)))
	})
}

// limit bounds what is worked on at a time; watches and the administrators'
// requests are not counted.
func (c *Config) limit(next http.Handler) http.Handler {
	slots := func(n int) chan struct{} {
		if n <= 0 {
			return nil
		}
		return make(chan struct{}, n)
	}
	reads, writes := slots(c.MaxInFlight), slots(c.MaxMutatingInFlight)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		i := request.InfoFrom(r.Context())
		if LongRunning(i) {
			next.ServeHTTP(w, r)
			return
		}
		kind, pool := "readOnly", reads
		switch i.Verb {
		case "create", "update", "patch", "delete", "deletecollection":
			kind, pool = "mutating", writes
		}
		g := c.Metrics.inflight.WithLabelValues(kind)
		if pool != nil {
			select {
			case pool <- struct{}{}:
				defer func() { <-pool }()
			default:
				if u := request.UserFrom(r.Context()); !u.InGroup(api.GroupMasters) {
					w.Header().Set("Retry-After", "1")
					c.Responder.Error(w, r, apierrors.NewTooManyRequests("Too many requests, please try again later.", 1))
					return
				}
			}
		}
		g.Inc()
		defer g.Dec()
		next.ServeHTTP(w, r)
	})
}

func (c *Config) authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := r.Context()
		attrs := authz.AttributesOf(request.UserFrom(ctx), request.InfoFrom(ctx))
		d, reason, err := c.Authorizer.Authorize(ctx, attrs)
		if d == authz.Allow {
			next.ServeHTTP(w, r)
			return
		}
		if err != nil {
			c.Logger.Warn("authorization failed", "path", r.URL.Path, "error", err)
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		c.Responder.Error(w, r, authz.Forbidden(attrs, reason))
	})
}

func (c *Config) warnings(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, _ := request.WithWarnings(r.Context())
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
