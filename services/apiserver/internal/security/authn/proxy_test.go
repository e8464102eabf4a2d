package authn_test

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"reflect"
	"strings"
	"testing"

	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/authn"
)

// TestFrontProxyHeadersIdentifyUser authenticates users by the headers of an authenticating proxy.
func TestFrontProxyHeadersIdentifyUser(t *testing.T) {
	authority, other := newAuthority(t), newAuthority(t)
	proxy, err := authn.NewFrontProxy(authority.certPool, []string{"proxy"}, authn.ProxyHeaders{
		Username:    []string{"X-Remote-User", "X-Other-User"},
		UID:         []string{"X-Remote-Uid"},
		Group:       []string{"X-Remote-Group"},
		ExtraPrefix: []string{"x-remote-extra-"},
	})
	if err != nil {
		t.Fatal(err)
	}
	good := authority.issue(pkix.Name{CommonName: "proxy"}, nil)
	for name, test := range map[string]struct {
		cert     *x509.Certificate
		headers  []string
		want     *request.User
		rejected bool
	}{
		"only a user": {
			cert:    good,
			headers: []string{"X-Remote-User", "alice"},
			want:    &request.User{Name: "alice", Groups: []string{"system:authenticated"}},
		},
		"user in the second header": {
			cert:    good,
			headers: []string{"X-Remote-User", "", "x-other-user", "alice"},
			want:    &request.User{Name: "alice", Groups: []string{"system:authenticated"}},
		},
		"user in both headers": {
			cert:    good,
			headers: []string{"X-Other-User", "bob", "X-Remote-User", "alice"},
			want:    &request.User{Name: "alice", Groups: []string{"system:authenticated"}},
		},
		"user, UID, groups and extra": {
			cert: good,
			headers: []string{
				"X-Remote-User", "alice", "X-Remote-Uid", "u1", "X-Remote-Group", "dev", "X-Remote-Group", "ops",
				"X-Remote-Extra-Scopes", "a", "X-Remote-Extra-Scopes",
				"b", "X-Remote-Extra-Acme.com%2FProject", "p", "X-Remote-Extra-Bad%2", "c",
			},
			want: &request.User{
				Name:   "alice",
				UID:    "u1",
				Groups: []string{"dev", "ops", "system:authenticated"},
				Extra:  map[string][]string{"scopes": {"a", "b"}, "acme.com/project": {"p"}, "bad%2": {"c"}},
			},
		},
		"no user":        {cert: good, headers: []string{"X-Remote-Group", "dev"}},
		"no certificate": {headers: []string{"X-Remote-User", "alice"}},
		"certificate of another CA": {
			cert:     other.issue(pkix.Name{CommonName: "proxy"}, nil),
			headers:  []string{"X-Remote-User", "alice"},
			rejected: true,
		},
		"a service of the suite": {
			cert:     good,
			headers:  []string{"X-Remote-User", "system:binnacle:authn-webhook", "X-Remote-Group", "dev"},
			rejected: true,
		},
		"the suite's group": {
			cert:     good,
			headers:  []string{"X-Remote-User", "alice", "X-Remote-Group", "dev", "X-Remote-Group", "system:binnacle"},
			rejected: true,
		},
		"certificate with another name": {
			cert:     authority.issue(pkix.Name{CommonName: "else"}, nil),
			headers:  []string{"X-Remote-User", "alice"},
			rejected: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				r := withCertificate(newRequest(test.headers...), test.cert)
				user, err := proxy.Authenticate(r)
				if !reflect.DeepEqual(user, test.want) || errors.Is(err, authn.ErrInvalid) != test.rejected {
					t.Fatalf("got user %+v, error %v, want user %+v, rejected: %t", user, err, test.want, test.rejected)
				}
				for h := range r.Header {
					if strings.HasPrefix(h, "X-") {
						t.Errorf("got header %s, want it removed", h)
					}
				}
			}
		})
	}
	if user, err := proxy.Authenticate(newRequest("X-Remote-User", "alice")); user != nil || err != nil {
		t.Errorf("without TLS: got %v, %v; want nil, no error", user, err)
	}
}

// FuzzExtraKey checks that no key decodes to an empty one.
func FuzzExtraKey(f *testing.F) {
	f.Add("Acme.com%2FProject")
	f.Add("%")
	f.Fuzz(func(t *testing.T, s string) {
		if authn.ExtraKey(s) == "" && s != "" {
			t.Errorf("ExtraKey(%q): got an empty key, want another one", s)
		}
	})
}
