package authn_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"k8s.io/apimachinery/pkg/apis/asn1"

	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/request/requesttest"
	"binnacle/services/apiserver/internal/security/authn"
)

// tokenReviewer is a reviewer that knows the token "good". It returns an error for "lost".
type tokenReviewer struct{ reviewed []string }

func (t *tokenReviewer) Review(_ context.Context, token string, _ []string) (*authn.Review, error) {
	t.reviewed = append(t.reviewed, token)
	switch token {
	case "good":
		return &authn.Review{Authenticated: true, User: request.User{Name: "alice", Groups: []string{"system:authenticated"}}}, nil
	case "lost":
		return nil, errors.New("no service")
	}
	return &authn.Review{Error: authn.UnknownToken}, nil
}

func newRequest(header ...string) *http.Request {
	r := httptest.NewRequest(http.MethodGet, "/api", nil)
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	return r
}

func userName(user *request.User) string {
	if user == nil {
		return ""
	}
	return user.Name
}

// TestBearerAcceptsAllHeaderSpellings reviews the token of the Authorization header in all its
// spellings.
func TestBearerAcceptsAllHeaderSpellings(t *testing.T) {
	for header, test := range map[string]struct {
		user     string
		rejected bool
		reviewed bool
		warning  bool
	}{
		"Bearer good":        {user: "alice", reviewed: true},
		"bearer good":        {user: "alice", reviewed: true},
		"BEARER good ":       {user: "alice", reviewed: true},
		"Bearer good rest":   {user: "alice", reviewed: true},
		"Bearer  good":       {warning: true},
		"Bearer    good":     {warning: true},
		"Bearer\tgood":       {},
		"Bearer \tgood":      {rejected: true, reviewed: true},
		"Bearer bad":         {rejected: true, reviewed: true},
		"Bearer lost":        {rejected: true, reviewed: true},
		"Bearer ":            {},
		"Bearer":             {},
		"":                   {},
		"Basic YWxpY2U6eA==": {},
		"good":               {},
	} {
		t.Run(header, func(t *testing.T) {
			reviewer := &tokenReviewer{}
			r := newRequest("Authorization", header)
			ctx, warnings := requesttest.WithWarnings(r.Context())
			user, err := authn.Bearer{Tokens: reviewer}.Authenticate(r.WithContext(ctx))
			if warned := warnings.Headers(); (warned != nil) != test.warning {
				t.Errorf("got warnings %q, want %v", warned, test.warning)
			}
			if userName(user) != test.user || errors.Is(err, authn.ErrInvalid) != test.rejected || (len(reviewer.reviewed) > 0) != test.reviewed {
				t.Errorf("got user %v, error %v, reviews of %v; want %v, %v, %v",
					user, err, reviewer.reviewed, test.user, test.rejected, test.reviewed)
			}
		})
	}
}

// TestWebSocketTokenAuthenticatesAndIsRemoved checks that the token in the subprotocols of a WebSocket authenticates, and
// that it is removed from them.
func TestWebSocketTokenAuthenticatesAndIsRemoved(t *testing.T) {
	encode := base64.RawURLEncoding.EncodeToString
	const prefix = "base64url.bearer.authorization.k8s.io."
	for name, test := range map[string]struct {
		protocols []string
		plain     bool // the request has no Upgrade header
		user      string
		rejected  bool
		remaining string
	}{
		"a token and another": {
			protocols: []string{prefix + encode([]byte("good")) + ", v4.channel.k8s.io"},
			user:      "alice",
			remaining: "v4.channel.k8s.io",
		},
		"a token among protocols on several lines": {
			protocols: []string{"v5.channel.k8s.io", prefix + encode([]byte("good")), "v4.channel.k8s.io"},
			user:      "alice",
			remaining: "v5.channel.k8s.io,v4.channel.k8s.io",
		},
		"the token alone": {protocols: []string{prefix + encode([]byte("good"))}, rejected: true},
		"two tokens": {
			protocols: []string{prefix + encode([]byte("good")), prefix + encode([]byte("good")), "v4"},
			rejected:  true,
		},
		"a bad token":                {protocols: []string{prefix + encode([]byte("bad")), "v4"}, rejected: true},
		"a token that is not base64": {protocols: []string{prefix + "%", "v4"}, rejected: true},
		"a token with padding": {
			protocols: []string{prefix + base64.URLEncoding.EncodeToString([]byte("good")), "v4"},
			rejected:  true,
		},
		"a token that is not UTF-8": {protocols: []string{prefix + encode([]byte{0xff}), "v4"}, rejected: true},
		"an empty token":            {protocols: []string{prefix, "v4"}, rejected: true},
		"no token":                  {protocols: []string{"v4.channel.k8s.io"}},
		"no WebSocket":              {protocols: []string{prefix + encode([]byte("good")), "v4"}, plain: true},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRequest("Connection", "Upgrade")
			if !test.plain {
				r.Header.Set("Upgrade", "WebSocket")
			}
			for _, p := range test.protocols {
				r.Header.Add("Sec-WebSocket-Protocol", p)
			}
			user, err := authn.WebSocket{Tokens: &tokenReviewer{}}.Authenticate(r)
			if userName(user) != test.user || errors.Is(err, authn.ErrInvalid) != test.rejected {
				t.Fatalf("got user %v, error %v, want user %q, rejected: %t", user, err, test.user, test.rejected)
			}
			if remaining := strings.Join(r.Header.Values("Sec-WebSocket-Protocol"), "|"); user != nil && remaining != test.remaining {
				t.Errorf("got remaining protocols %q, want %q", remaining, test.remaining)
			}
		})
	}
}

// TestFirstAuthenticatorWithUserDecides checks that the first authenticator that finds a user decides,
// and that the token is removed from the request.
func TestFirstAuthenticatorWithUserDecides(t *testing.T) {
	bearer := authn.Bearer{Tokens: &tokenReviewer{}}
	guarded := authn.Anonymous{Allowed: func(path string) bool { return path == "/api" }}
	for name, test := range map[string]struct {
		chain    authn.Chain
		header   string
		path     string
		user     string
		rejected bool
	}{
		"a good token":                    {chain: authn.Chain{bearer, authn.Anonymous{}}, header: "Bearer good", user: "alice"},
		"a bad token is not anonymous":    {chain: authn.Chain{bearer, authn.Anonymous{}}, header: "Bearer bad", rejected: true},
		"no token is anonymous":           {chain: authn.Chain{bearer, authn.Anonymous{}}, user: "system:anonymous"},
		"no credentials, no user":         {chain: authn.Chain{bearer}},
		"anonymous where that is allowed": {chain: authn.Chain{bearer, guarded}, user: "system:anonymous"},
		"not anonymous on other paths":    {chain: authn.Chain{bearer, guarded}, path: "/other"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRequest("Authorization", test.header)
			if test.path != "" {
				r.URL.Path = test.path
			}
			user, err := test.chain.Authenticate(r)
			if userName(user) != test.user || (err != nil) != test.rejected {
				t.Errorf("got user %v, error %v, want user %q, rejected: %t", user, err, test.user, test.rejected)
			}
			if user != nil && r.Header.Get("Authorization") != "" {
				t.Error("got a request with the token, want one without it")
			}
		})
	}
}

// TestCredentialsAreRemoved checks that a request leaves authentication without headers that
// identify a user, whatever method authenticated it.
func TestCredentialsAreRemoved(t *testing.T) {
	authority := newAuthority(t)
	certs, err := authn.NewCertificates(authority.certPool, false)
	if err != nil {
		t.Fatal(err)
	}
	token := "base64url.bearer.authorization.k8s.io." + base64.RawURLEncoding.EncodeToString([]byte("good"))
	for name, test := range map[string]struct {
		chain authn.Chain
		user  string
	}{
		"a certificate":     {chain: authn.Chain{certs}, user: "alice"},
		"a token":           {chain: authn.Chain{authn.Bearer{Tokens: &tokenReviewer{}}}, user: "alice"},
		"an anonymous user": {chain: authn.Chain{authn.Anonymous{}}, user: "system:anonymous"},
	} {
		t.Run(name, func(t *testing.T) {
			// The request has headers of an authenticating proxy in several spellings: proxies and servers
			// may treat an underscore like a hyphen. Only X-Say, X-Remote-Addr and the second WebSocket
			// protocol are not credentials.
			r := withCertificate(newRequest("Authorization", "Bearer good", "X-Say", "hello", "X-Remote-User", "root", "x-remote-uid", "0",
				"X-REMOTE-GROUP", "system:masters", "X-Remote-Group", "dev", "X-Remote-Extra-Scopes", "all", "X-Remote-Extra-", "all",
				"X_Remote_User", "root", "x_remote-uid", "0", "X-Remote_Group", "system:masters", "x-remote_extra_scopes", "all", "X-Remote-Addr", "192.0.2.1",
				"Sec-WebSocket-Protocol", token+", v4.channel.k8s.io"), authority.issue(pkix.Name{CommonName: "alice"}, nil))
			user, err := test.chain.Authenticate(r)
			if userName(user) != test.user || err != nil {
				t.Fatalf("got user %v, error %v; want %v, no error", user, err, test.user)
			}
			want := http.Header{"X-Say": {"hello"}, "X-Remote-Addr": {"192.0.2.1"}, "Sec-Websocket-Protocol": {"v4.channel.k8s.io"}}
			if !reflect.DeepEqual(r.Header, want) {
				t.Errorf("got remaining headers %v, want %v", r.Header, want)
			}
		})
	}
}

// TestAuthenticatedAddsGroupOnce checks which users get the group of authenticated users. user is a
// name followed by groups.
func TestAuthenticatedAddsGroupOnce(t *testing.T) {
	for _, c := range []struct{ user, want []string }{
		{user: []string{"alice", "dev"}, want: []string{"dev", "system:authenticated"}},
		{user: []string{"alice", "system:authenticated"}, want: []string{"system:authenticated"}},
		{user: []string{"alice", "system:unauthenticated"}, want: []string{"system:unauthenticated"}},
		{user: []string{"system:anonymous"}},
	} {
		before := slices.Clone(c.user[1:])
		user := &request.User{Name: c.user[0], Groups: c.user[1:]}
		if got := authn.Authenticated(user).Groups; len(got) != len(c.want) || len(got) > 0 && !slices.Equal(got, c.want) {
			t.Errorf("%v: got groups %v, want %v", c.user, got, c.want)
		}
		if !slices.Equal(user.Groups, before) {
			t.Errorf("the user was modified: got groups %v, want %v", user.Groups, before)
		}
	}
}

// authority issues client certificates.
type authority struct {
	t    *testing.T
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "ca"},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{t, cert, key}
}

func (a *authority) certPool() *x509.CertPool {
	p := x509.NewCertPool()
	p.AddCert(a.cert)
	return p
}

func (a *authority) issue(subject pkix.Name, change func(*x509.Certificate)) *x509.Certificate {
	a.t.Helper()
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      subject,
		NotAfter:     time.Now().Add(time.Hour),
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}
	if change != nil {
		change(tmpl)
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, a.cert, a.key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return cert
}

func withCertificate(r *http.Request, cert *x509.Certificate) *http.Request {
	r.TLS = &tls.ConnectionState{}
	if cert != nil {
		r.TLS.PeerCertificates = []*x509.Certificate{cert}
	}
	return r
}

// TestCertificatesOfCurrentBundleAuthenticate authenticates clients by certificates of the current
// CA bundle.
func TestCertificatesOfCurrentBundleAuthenticate(t *testing.T) {
	authority, other := newAuthority(t), newAuthority(t)
	alice := pkix.Name{CommonName: "alice", Organization: []string{"dev", "ops"}}
	pool := authority.certPool()
	certs, err := authn.NewCertificates(func() *x509.CertPool { return pool }, true)
	if err != nil {
		t.Fatal(err)
	}
	withUIDs := func(uids ...any) *x509.Certificate {
		n := alice
		for _, uid := range uids {
			n.ExtraNames = append(n.ExtraNames, pkix.AttributeTypeAndValue{Type: asn1.X509UID(), Value: uid})
		}
		return authority.issue(n, nil)
	}
	for name, test := range map[string]struct {
		cert     *x509.Certificate
		user     string
		uid      string
		rejected bool
	}{
		"with a uid":        {cert: withUIDs("u-1"), user: "alice", uid: "u-1"},
		"with two uids":     {cert: withUIDs("u-1", "u-2"), rejected: true},
		"with an empty uid": {cert: withUIDs(""), rejected: true},
		"valid":             {cert: authority.issue(alice, nil), user: "alice"},
		"no certificate":    {},
		"of another CA":     {cert: other.issue(alice, nil), rejected: true},
		"expired": {
			cert:     authority.issue(alice, func(c *x509.Certificate) { c.NotAfter = time.Now().Add(-time.Hour) }),
			rejected: true,
		},
		"not yet valid": {
			cert:     authority.issue(alice, func(c *x509.Certificate) { c.NotBefore = time.Now().Add(30 * time.Minute) }),
			rejected: true,
		},
		"a server certificate": {
			cert:     authority.issue(alice, func(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth} }),
			rejected: true,
		},
		"without a name":                      {cert: authority.issue(pkix.Name{Organization: []string{"dev"}}, nil)},
		"a valid one after the rejected ones": {cert: authority.issue(alice, nil), user: "alice"},
	} {
		t.Run(name, func(t *testing.T) {
			for range 2 { // the second result is cached
				user, err := certs.Authenticate(withCertificate(newRequest(), test.cert))
				if userName(user) != test.user || errors.Is(err, authn.ErrInvalid) != test.rejected {
					t.Fatalf("got user %v, error %v, want user %q, rejected: %t", user, err, test.user, test.rejected)
				}
				if user != nil && (user.UID != test.uid || !slices.Equal(user.Groups, []string{"dev", "ops", "system:authenticated"})) {
					t.Errorf("got uid %q, groups %v; want %q, [dev ops system:authenticated]", user.UID, user.Groups, test.uid)
				}
			}
		})
	}
	cert := authority.issue(alice, nil)
	if user, _ := certs.Authenticate(withCertificate(newRequest(), cert)); user == nil {
		t.Fatal("valid certificate: got no user, want alice")
	}

	// A certificate of the earlier bundle is rejected although its verification is cached.
	pool = other.certPool()
	if user, err := certs.Authenticate(withCertificate(newRequest(), cert)); user != nil || err == nil {
		t.Errorf("after a change of the bundle: got %v, %v; want nil, an error", user, err)
	}
}

// TestAttemptsAreCountedByResult checks that attempts are counted by their result, and users by
// their kind.
func TestAttemptsAreCountedByResult(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	measured := authn.NewMeasured(authn.Chain{authn.Bearer{Tokens: &tokenReviewer{}}}, reg)
	for _, header := range []string{"Bearer good", "Bearer good", "Bearer bad", ""} {
		_, _ = measured.Authenticate(newRequest("Authorization", header))
	}
	want := map[string]float64{
		`authenticated_user_requests{username="other"}`: 2, `authentication_attempts{result="error"}`: 1,
		`authentication_attempts{result="failure"}`: 1, `authentication_attempts{result="success"}`: 2,
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, measured := range f.GetMetric() {
			if c := measured.GetCounter(); c != nil {
				series := fmt.Sprintf("%s{%s=%q}", f.GetName(), measured.GetLabel()[0].GetName(), measured.GetLabel()[0].GetValue())
				if want[series] != c.GetValue() {
					t.Errorf("%s: got %v, want %v", series, c.GetValue(), want[series])
				}
				delete(want, series)
			}
		}
	}
	if len(want) > 0 {
		t.Errorf("got no series %v, want them", want)
	}
}
