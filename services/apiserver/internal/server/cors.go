package server

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
)

const originsHelp = "each pattern must be anchored to the start of the host by '^' or '//', and to its end by '$' or ':', " +
	"as in '//example\\.com(:|$)' and '^https://example\\.com(:|$)'"

// CheckOrigins validates patterns of origins. A pattern must be anchored, because otherwise
// example.com matches evil-example.com.attacker.net. As in Kubernetes, the check only looks for the
// characters of an anchor.
func CheckOrigins(patterns []string) (errs []error) {
	for _, pattern := range patterns {
		if pattern == "" {
			errs = append(errs, fmt.Errorf("empty value in --cors-allowed-origins, help: %s", originsHelp))
			continue
		}
		if err := checkOrigin(pattern); err != nil {
			errs = append(errs, fmt.Errorf("--cors-allowed-origins has an invalid regular expression: %w, help: %s", err, originsHelp))
		}
	}
	return errs
}

// checkOrigin returns an error unless a pattern compiles and contains both anchors.
func checkOrigin(pattern string) error {
	if _, err := regexp.Compile(pattern); err != nil {
		return err
	}
	pinsStart := strings.Contains(pattern, "^") || strings.Contains(pattern, "//")
	pinsEnd := strings.ContainsAny(pattern, "$:")
	if !pinsStart || !pinsEnd {
		return errors.New("regular expression does not pin to start/end of host in the origin header")
	}
	return nil
}

// anchorsHostEnd reports whether a pattern anchors the end of the host. The colon after a scheme
// passes CheckOrigins, but anchors nothing.
func anchorsHostEnd(pattern string) bool {
	return strings.ContainsAny(strings.ReplaceAll(pattern, "://", ""), "$:")
}

// corsFilter returns the filter that adds CORS headers for allowed origins and responds to preflight
// requests.
func (c *Config) corsFilter() (func(http.Handler) http.Handler, error) {
	var patterns []*regexp.Regexp
	for _, pattern := range c.AllowedOrigins {
		expression, err := regexp.Compile(pattern)
		if err != nil {
			return nil, fmt.Errorf("--cors-allowed-origins: %w", err)
		}
		patterns = append(patterns, expression)
		if !anchorsHostEnd(pattern) {
			c.Logger.Warn("pattern in --cors-allowed-origins does not anchor the end of the host; end it with (:|$)", "pattern", pattern)
		}
	}
	return func(next http.Handler) http.Handler {
		if len(patterns) == 0 {
			return next
		}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			origin := r.Header.Get("Origin")
			isAllowed := func(expression *regexp.Regexp) bool { return expression.MatchString(origin) }
			if origin == "" || !slices.ContainsFunc(patterns, isAllowed) {
				next.ServeHTTP(w, r)
				return
			}
			header := w.Header()
			header.Set("Access-Control-Allow-Origin", origin)
			header.Set("Access-Control-Allow-Methods", "POST, GET, OPTIONS, PUT, DELETE, PATCH")
			header.Set("Access-Control-Allow-Headers",
				"Content-Type, Content-Length, Accept-Encoding, X-CSRF-Token, Authorization, X-Requested-With, If-Modified-Since")
			header.Set("Access-Control-Expose-Headers", "Date")
			header.Set("Access-Control-Allow-Credentials", "true")
			if r.Method == http.MethodOptions { // a preflight request
				w.WriteHeader(http.StatusNoContent)
				return
			}
			next.ServeHTTP(w, r)
		})
	}, nil
}
