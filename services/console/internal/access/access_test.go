package access

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// authority issues certificates.
type authority struct {
	t    *testing.T
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ca := &authority{t: t, key: key}
	root := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "ca"},
		NotAfter:              time.Now().Add(time.Hour),
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	ca.cert = ca.sign(root, root)
	return ca
}

func (a *authority) sign(template, parent *x509.Certificate) *x509.Certificate {
	a.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &a.key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	out, err := x509.ParseCertificate(der)
	if err != nil {
		a.t.Fatal(err)
	}
	return out
}

func (a *authority) issueClient(use x509.ExtKeyUsage, validFor time.Duration, name string, groups ...string) *x509.Certificate {
	return a.sign(&x509.Certificate{
		SerialNumber: big.NewInt(2),
		Subject:      pkix.Name{CommonName: name, Organization: groups},
		NotAfter:     time.Now().Add(validFor),
		ExtKeyUsage:  []x509.ExtKeyUsage{use},
	}, a.cert)
}

// server is an API server that knows the tokens "ada", "bob" and "nameless". The group "viewers"
// may read metrics.
type server struct {
	*fake.Clientset
	requests int
	failing  bool
}

// newServer returns a fake client whose reviews are decided as documented for server.
func newServer() *server {
	api := &server{Clientset: fake.NewClientset()}
	api.PrependReactor("create", "tokenreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		api.requests++
		if api.failing {
			return true, nil, errors.New("no etcd")
		}
		review := action.(clienttesting.CreateAction).GetObject().(*authenticationv1.TokenReview).DeepCopy()
		groups := map[string][]string{"ada": {"viewers"}, "bob": {"others"}}
		review.Status.Authenticated = groups[review.Spec.Token] != nil || review.Spec.Token == "nameless"
		if groups[review.Spec.Token] != nil {
			review.Status.User = authenticationv1.UserInfo{
				Username: review.Spec.Token,
				Groups:   groups[review.Spec.Token],
				Extra:    map[string]authenticationv1.ExtraValue{"k": {"v"}},
			}
		}
		return true, review, nil
	})
	api.PrependReactor("create", "subjectaccessreviews", func(action clienttesting.Action) (bool, runtime.Object, error) {
		api.requests++
		if api.failing {
			return true, nil, errors.New("no etcd")
		}
		review := action.(clienttesting.CreateAction).GetObject().(*authorizationv1.SubjectAccessReview).DeepCopy()
		for _, group := range review.Spec.Groups {
			name := review.Spec.NonResourceAttributes
			review.Status.Allowed = review.Status.Allowed || group == "viewers" && name.Path == "/metrics" && name.Verb == "get"
			review.Status.Denied = review.Status.Denied || group == "denied"
		}
		return true, review, nil
	})
	return api
}

func newRequest(token string, certs ...*x509.Certificate) *http.Request {
	req := httptest.NewRequest(http.MethodGet, "/state", nil)
	req.TLS = &tls.ConnectionState{PeerCertificates: certs}
	if token != "" {
		req.Header.Set("Authorization", token)
	}
	return req
}

func newAuthorizer(t *testing.T, api *server, ca *authority) *Authorizer {
	t.Helper()
	authorizer, err := NewAuthorizer(api.AuthenticationV1().TokenReviews(), api.AuthorizationV1().SubjectAccessReviews(),
		func() (x509.VerifyOptions, bool) {
			if ca == nil {
				return x509.VerifyOptions{}, false
			}
			pool := x509.NewCertPool()
			pool.AddCert(ca.cert)
			return x509.VerifyOptions{Roots: pool, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}, true
		})
	if err != nil {
		t.Fatal(err)
	}
	return authorizer
}

// TestAuthorizerAdmitsOnlyPermittedClients permits clients by certificate or token, and rejects others.
func TestAuthorizerAdmitsOnlyPermittedClients(t *testing.T) {
	const client = x509.ExtKeyUsageClientAuth
	trusted, untrusted := newAuthority(t), newAuthority(t)
	viewer := trusted.issueClient(client, time.Hour, "eve", "viewers")
	withoutTLS := newRequest("")
	withoutTLS.TLS = nil
	for name, test := range map[string]struct {
		request *http.Request
		want    int    // status code; 0 if permitted
		message string // a part of it
	}{
		"a token":                      {request: newRequest("Bearer ada"), want: 0, message: ""},
		"a token with unusual spacing": {request: newRequest("bearer  ada"), want: 0, message: ""},
		"a token without permission": {
			request: newRequest("Bearer bob"),
			want:    403,
			message: `User "bob" cannot get path "/metrics"`,
		},
		"an unknown token":          {request: newRequest("Bearer eve"), want: 401, message: "not valid"},
		"a token without user name": {request: newRequest("Bearer nameless"), want: 401, message: "not valid"},
		"an empty token":            {request: newRequest("Bearer "), want: 401, message: "empty"},
		"a token that is too long": {
			request: newRequest("Bearer " + strings.Repeat("x", maxToken+1)),
			want:    401,
			message: "too long",
		},
		"a password":     {request: newRequest("Basic YTpi"), want: 401, message: "authentication required"},
		"no credentials": {request: newRequest(""), want: 401, message: "authentication required"},
		"no TLS":         {request: withoutTLS, want: 401, message: "authentication required"},
		"a certificate":  {request: newRequest("", viewer), want: 0, message: ""},
		"certificate without permission": {
			request: newRequest("", trusted.issueClient(client, time.Hour, "mallory", "others")),
			want:    403,
			message: "mallory",
		},
		"certificate of a denied group": {
			request: newRequest("", trusted.issueClient(client, time.Hour, "mallory", "viewers", "denied")),
			want:    403,
			message: "mallory",
		},
		"certificate of another authority": {
			request: newRequest("", untrusted.issueClient(client, time.Hour, "eve", "viewers")),
			want:    401,
			message: "not valid",
		},
		"expired certificate": {
			request: newRequest("", trusted.issueClient(client, -time.Minute, "eve", "viewers")),
			want:    401,
			message: "not valid",
		},
		"serving certificate": {
			request: newRequest("", trusted.issueClient(x509.ExtKeyUsageServerAuth, time.Hour, "eve", "viewers")),
			want:    401,
			message: "not valid",
		},
		"certificate without name": {
			request: newRequest("", trusted.issueClient(client, time.Hour, "", "viewers")),
			want:    401,
			message: "no common name",
		},
		"invalid token beside a certificate": {request: newRequest("Bearer eve", viewer), want: 401, message: "not valid"},
		"a token beside a certificate":       {request: newRequest("Bearer bob", viewer), want: 403, message: "bob"},
	} {
		authorizer := newAuthorizer(t, newServer(), trusted)
		for range 2 { // the second result may be cached
			got := authorizer.Check(test.request)
			if got == nil && test.want == 0 {
				continue
			}
			if got == nil || got.Code != test.want || !strings.Contains(got.Message, test.message) {
				t.Errorf("%s: got %+v, want %d %q", name, got, test.want, test.message)
			}
		}
	}
	if got := newAuthorizer(t, newServer(), nil).Check(newRequest("", viewer)); got == nil || got.Code != 401 {
		t.Errorf("without a client CA: got %+v, want 401", got)
	}
}

// TestDecisionsAreCached checks that decisions are cached for a while, errors are not.
func TestDecisionsAreCached(t *testing.T) {
	server := newServer()
	authorizer := newAuthorizer(t, server, nil)
	now := time.Now()
	authorizer.now = func() time.Time { return now }
	server.failing = true
	for range 2 {
		if got := authorizer.Check(newRequest("Bearer ada")); got == nil || got.Code != 503 || strings.Contains(got.Message, "etcd") {
			t.Errorf("API server fails: got %+v, want 503 that does not name etcd", got)
		}
	}
	if server.requests != 2 {
		t.Errorf("got %d requests, want 2", server.requests)
	}
	server.failing, server.requests = false, 0
	for range 3 {
		if got := authorizer.Check(newRequest("Bearer ada")); got != nil {
			t.Errorf("valid token: got %+v, want it admitted", got)
		}
	}
	if server.requests != 2 { // a token review and an access review
		t.Errorf("got %d requests, want 2", server.requests)
	}
	server.failing = true
	now = now.Add(decisionTTL)
	if got := authorizer.Check(newRequest("Bearer ada")); got == nil || got.Code != 503 {
		t.Errorf("expired cache entry: got %+v, want 503", got)
	}
}
