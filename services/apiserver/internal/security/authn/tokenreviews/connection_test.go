package tokenreviews_test

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"

	"binnacle/services/apiserver/internal/security/authn/tokenreviews"
)

// TestConnectionCacheKeepsUsersApart: one connection may carry tokens of several users concurrently, and each
// request gets the user of its token.
func TestConnectionCacheKeepsUsersApart(t *testing.T) {
	r := newFixture(t, true, nil)
	r.all()
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		rev, err := r.cache.Review(req.Context(), req.Header.Get("Token"), nil)
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		w.Header().Set("User", rev.User.Name)
	}))
	s.EnableHTTP2, s.Config.ConnContext = true, tokenreviews.WithConnection
	s.StartTLS()
	defer s.Close()
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		client := &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: protocol == "HTTP/2.0", MaxConnsPerHost: 1,
		}}
		ask := func(token string) error {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.URL, nil)
			if err != nil {
				return err
			}
			req.Header.Set("Token", token)
			resp, err := client.Do(req)
			if err != nil {
				return err
			}
			defer resp.Body.Close()
			if got := resp.Header.Get("User"); got != token || resp.Proto != protocol {
				return fmt.Errorf("%s: token %q: got user %q", resp.Proto, token, got)
			}
			return nil
		}
		failed := make(chan error, 4)
		for i := range cap(failed) {
			go func() {
				for j := range 50 {
					// Names of equal length, repeated in a pattern.
					if err := ask(fmt.Sprintf("user-%d", (i+j/3)%5)); err != nil {
						failed <- err
						return
					}
				}
				failed <- nil
			}()
		}
		for range cap(failed) {
			if err := <-failed; err != nil {
				t.Error(err)
			}
		}
		client.CloseIdleConnections()
	}
}
