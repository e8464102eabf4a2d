package authn_test

import (
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net/http"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/apis/asn1"

	"binnacle/services/apiserver/internal/request"
	"binnacle/services/apiserver/internal/security/authn"
)

// issueIntermediate issues an intermediate authority that is valid until a time.
func (a *authority) issueIntermediate(name string, until time.Time) *authority {
	a.t.Helper()
	intermediate := newAuthority(a.t)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber:          big.NewInt(3),
		Subject:               pkix.Name{CommonName: name},
		NotAfter:              until,
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}, a.cert, intermediate.key.Public(), a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	if intermediate.cert, err = x509.ParseCertificate(der); err != nil {
		a.t.Fatal(err)
	}
	return intermediate
}

// certificateAuthenticators are the methods that verify certificates and cache the results.
var certificateAuthenticators = map[string]func(*testing.T, func() *x509.CertPool) authn.Authenticator{
	"client": func(t *testing.T, cas func() *x509.CertPool) authn.Authenticator {
		c, err := authn.NewCertificates(cas, false)
		if err != nil {
			t.Fatal(err)
		}
		return c
	},
	"proxy": func(t *testing.T, cas func() *x509.CertPool) authn.Authenticator {
		p, err := authn.NewFrontProxy(cas, nil, authn.ProxyHeaders{Username: []string{"X-Remote-User"}})
		if err != nil {
			t.Fatal(err)
		}
		return p
	},
}

// TestCachedCertificateExpiresWithItsChain checks that a cached result is valid as long as every certificate of
// the chain, and until the authorities change.
func TestCachedCertificateExpiresWithItsChain(t *testing.T) {
	for method, newMethod := range certificateAuthenticators {
		for name, test := range map[string]struct {
			present       func(root *authority) []*x509.Certificate
			sleep         time.Duration
			change        func(leaf *x509.Certificate)
			bundleChanges bool // the bundle is replaced by one of another authority
			before        bool // valid before the change
			after         bool // valid after the change
		}{
			"valid certificate": {
				present: func(root *authority) []*x509.Certificate {
					return []*x509.Certificate{root.issue(pkix.Name{CommonName: "alice"}, nil)}
				},
				sleep:  59 * time.Minute,
				before: true,
				after:  true,
			},
			"certificate expires after it was cached": {
				present: func(root *authority) []*x509.Certificate {
					return []*x509.Certificate{root.issue(pkix.Name{CommonName: "alice"}, func(c *x509.Certificate) {
						c.NotAfter = time.Now().Add(10 * time.Minute)
					})}
				},
				sleep:  11 * time.Minute,
				before: true,
			},
			"issuer expires after it was cached": {
				present: func(root *authority) []*x509.Certificate {
					issuer := root.issueIntermediate("issuer", time.Now().Add(10*time.Minute))
					return []*x509.Certificate{issuer.issue(pkix.Name{CommonName: "alice"}, nil), issuer.cert}
				},
				sleep:  11 * time.Minute,
				before: true,
			},
			"root expires after it was cached": {
				present: func(root *authority) []*x509.Certificate {
					return []*x509.Certificate{root.issue(pkix.Name{CommonName: "alice"},
						func(c *x509.Certificate) { c.NotAfter = time.Now().Add(3 * time.Hour) })}
				},
				sleep:  2 * time.Hour,
				before: true,
			},
			"authority is removed after it was cached": {
				present: func(root *authority) []*x509.Certificate {
					return []*x509.Certificate{root.issue(pkix.Name{CommonName: "alice"}, nil)}
				},
				bundleChanges: true,
				before:        true,
			},
			"clock is set back before the start of validity": {
				present: func(root *authority) []*x509.Certificate {
					return []*x509.Certificate{root.issue(pkix.Name{CommonName: "alice"}, nil)}
				},
				change: func(leaf *x509.Certificate) { leaf.NotBefore = time.Now().Add(time.Minute) },
				before: true,
			},
			"rejected certificate becomes valid": {
				present: func(root *authority) []*x509.Certificate {
					return []*x509.Certificate{root.issue(pkix.Name{CommonName: "alice"}, func(c *x509.Certificate) {
						c.NotBefore = time.Now().Add(5 * time.Minute)
					})}
				},
				sleep: 6 * time.Minute,
				after: true,
			},
		} {
			t.Run(method+": "+name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					root := newAuthority(t)
					pool := root.certPool()
					authenticator := newMethod(t, func() *x509.CertPool { return pool })
					presented := test.present(root)
					isAuthenticated := func() bool {
						r := withCertificate(newRequest("X-Remote-User", "alice"), nil)
						r.TLS.PeerCertificates = presented
						user, err := authenticator.Authenticate(r)
						if (user == nil) != errors.Is(err, authn.ErrInvalid) {
							t.Errorf("got user %v, error %v; want a user or authn.ErrInvalid", user, err)
						}
						return userName(user) == "alice"
					}
					for range 2 {
						if got := isAuthenticated(); got != test.before {
							t.Fatalf("before: got valid %v, want %v", got, test.before)
						}
					}
					if test.change != nil {
						test.change(presented[0])
					}
					if test.bundleChanges {
						pool = newAuthority(t).certPool()
					}
					time.Sleep(test.sleep)
					for range 2 {
						if got := isAuthenticated(); got != test.after {
							t.Errorf("after: got valid %v, want %v", got, test.after)
						}
					}
				})
			})
		}
	}
}

// TestChainIsPartOfTheCacheKey checks that a certificate that was rejected without its intermediate
// is accepted with it.
func TestChainIsPartOfTheCacheKey(t *testing.T) {
	for method, newMethod := range certificateAuthenticators {
		root := newAuthority(t)
		issuer, unrelated := root.issueIntermediate("issuer", time.Now().Add(time.Hour)), newAuthority(t)
		authenticator := newMethod(t, func() func() *x509.CertPool { p := root.certPool(); return func() *x509.CertPool { return p } }())
		leaf := issuer.issue(pkix.Name{CommonName: "alice"}, nil)
		for _, c := range []struct {
			intermediate *x509.Certificate // presented with the leaf
			user         string
		}{
			{intermediate: unrelated.cert},
			{intermediate: issuer.cert, user: "alice"},
			{intermediate: issuer.cert, user: "alice"},
		} {
			r := withCertificate(newRequest("X-Remote-User", "alice"), nil)
			r.TLS.PeerCertificates = []*x509.Certificate{leaf, c.intermediate}
			if user, err := authenticator.Authenticate(r); userName(user) != c.user {
				t.Errorf("%s: got %v, %v, want %q", method, user, err, c.user)
			}
		}
	}
}

// TestNoAuthorityOrNoTLSMeansNoUser checks that a request without TLS, or to a server without an
// authority, has no user, and that uids are read only if they are enabled.
func TestNoAuthorityOrNoTLSMeansNoUser(t *testing.T) {
	authority := newAuthority(t)
	uid := pkix.Name{CommonName: "alice", ExtraNames: []pkix.AttributeTypeAndValue{{Type: asn1.X509UID(), Value: "u-1"}}}
	withoutAuthority, err := authn.NewCertificates(func() *x509.CertPool { return nil }, false)
	if err != nil {
		t.Fatal(err)
	}
	if user, err := withoutAuthority.Authenticate(withCertificate(newRequest(), authority.issue(uid, nil))); user != nil || err != nil {
		t.Errorf("no authority: got %v, %v; want nil, no error", user, err)
	}
	certs, err := authn.NewCertificates(authority.certPool, false)
	if err != nil {
		t.Fatal(err)
	}
	if user, err := certs.Authenticate(newRequest()); user != nil || err != nil {
		t.Errorf("no TLS: got %v, %v; want nil, no error", user, err)
	}
	if user, err := certs.Authenticate(withCertificate(newRequest(), authority.issue(uid, nil))); err != nil ||
		userName(user) != "alice" ||
		user.UID != "" {
		t.Errorf("certificates without uids: got %v, %v; want no error, \"alice\", \"\"", user, err)
	}
}

// TestFirstMethodThatAcceptsDecides checks that a credential that one method rejects may be valid
// for another.
func TestFirstMethodThatAcceptsDecides(t *testing.T) {
	proxies, clients := newAuthority(t), newAuthority(t)
	proxy := certificateAuthenticators["proxy"](t, proxies.certPool)
	certs := certificateAuthenticators["client"](t, clients.certPool)
	user, err := authn.Chain{proxy, certs, authn.Anonymous{}}.Authenticate(withCertificate(newRequest(),
		clients.issue(pkix.Name{CommonName: "alice"}, nil)))
	if err != nil || userName(user) != "alice" {
		t.Errorf("got %v, %v; want no error, \"alice\"", user, err)
	}
}

// TestFirstUIDHeaderTakesPrecedence checks that the first header with a uid takes precedence.
func TestFirstUIDHeaderTakesPrecedence(t *testing.T) {
	ca := newAuthority(t)
	p, err := authn.NewFrontProxy(ca.certPool, nil, authn.ProxyHeaders{Username: []string{"A"}, UID: []string{"B", "C"}})
	if err != nil {
		t.Fatal(err)
	}
	user, err := p.Authenticate(withCertificate(newRequest("A", "alice", "B", "1", "C", "2"),
		ca.issue(pkix.Name{CommonName: "any"}, nil)))
	if want := (&request.User{
		Name:   "alice",
		UID:    "1",
		Groups: []string{"system:authenticated"},
	}); err != nil || !reflect.DeepEqual(user, want) {
		t.Errorf("got %+v, %v; want no error, %v", user, err, want)
	}
}

// TestProtocolsWithoutTokenAreUnchanged checks that WebSocket protocols without a token are not changed,
// and that a malformed token is not reviewed.
func TestProtocolsWithoutTokenAreUnchanged(t *testing.T) {
	const header = "Sec-Websocket-Protocol"
	r := newRequest("Upgrade", "websocket", header, "a,  b", header, "c")
	_, err := (authn.Chain{authn.Anonymous{}}).Authenticate(r)
	if err != nil || !reflect.DeepEqual(r.Header.Values(header), []string{"a,  b", "c"}) {
		t.Errorf("got %q, %v; want no error, [\"a,  b\", \"c\"]", r.Header.Values(header), err)
	}
	for _, text := range []string{"_w", "YQ%", "YQ=="} {
		reviewer := &tokenReviewer{}
		r := newRequest("Upgrade", "websocket", header, "base64url.bearer.authorization.k8s.io."+text+", v4")
		if user, err := (authn.WebSocket{Tokens: reviewer}).Authenticate(r); user != nil ||
			!errors.Is(err, authn.ErrInvalid) ||
			len(reviewer.reviewed) > 0 {
			t.Errorf("%s: got %v, %v, reviews of %q; want nil, %v, at most 0", text, user, err, reviewer.reviewed, authn.ErrInvalid)
		}
	}
}

// fixedUser authenticates every request as one user.
type fixedUser string

func (s fixedUser) Authenticate(*http.Request) (*request.User, error) {
	return &request.User{Name: string(s)}, nil
}

// TestUserMetricHasBoundedLabels checks that the metric of users has a bounded set of labels.
func TestUserMetricHasBoundedLabels(t *testing.T) {
	for user, label := range map[string]string{
		"admin": "admin", "client": "client", "kube_proxy": "kube_proxy", "kubelet": "kubelet",
		"system:serviceaccount:kube-system:default": "system:serviceaccount:kube-system:default",
		"alice@example.com":                         "email_id", "alice": "other", "system:serviceaccount:a:default": "other",
	} {
		reg := prometheus.NewPedanticRegistry()
		_, _ = authn.NewMeasured(fixedUser(user), reg).Authenticate(newRequest())
		families, err := reg.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "authenticated_user_requests" && f.GetMetric()[0].GetLabel()[0].GetValue() != label {
				t.Errorf("%s: got metric %v, want label %q", user, f.GetMetric(), label)
			}
		}
	}
}
