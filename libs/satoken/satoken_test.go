package satoken_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/libs/authenticator"
	"binnacle/libs/satoken"
)

const (
	issuer   = "https://kubernetes.default.svc"
	audience = "api"
)

var start = time.Date(2025, 6, 1, 12, 0, 0, 0, time.UTC)

var rsaKey = sync.OnceValue(func() *rsa.PrivateKey {
	k, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		panic(err)
	}
	return k
})

func ecKey(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func publicKeys(t testing.TB, keys ...crypto.Signer) []satoken.PublicKey {
	t.Helper()
	var out []satoken.PublicKey
	for _, k := range keys {
		p, err := satoken.NewPublicKey(k.Public())
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, p)
	}
	return out
}

// fixture holds the objects that tokens are bound to.
type fixture struct {
	accounts map[string]*corev1.ServiceAccount
	pods     map[string]*corev1.Pod
	secrets  map[string]*corev1.Secret
	nodes    map[string]*corev1.Node
	down     error
}

func find[T any](f *fixture, objects map[string]*T, resource, key string) (*T, error) {
	if f.down != nil {
		return nil, f.down
	}
	if object, ok := objects[key]; ok {
		return object, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource(resource), key)
}

func (f *fixture) ServiceAccount(_ context.Context, ns, name string) (*corev1.ServiceAccount, error) {
	return find(f, f.accounts, "serviceaccounts", ns+"/"+name)
}
func (f *fixture) Pod(_ context.Context, ns, name string) (*corev1.Pod, error) {
	return find(f, f.pods, "pods", ns+"/"+name)
}
func (f *fixture) Secret(_ context.Context, ns, name string) (*corev1.Secret, error) {
	return find(f, f.secrets, "secrets", ns+"/"+name)
}
func (f *fixture) Node(_ context.Context, name string) (*corev1.Node, error) {
	return find(f, f.nodes, "nodes", name)
}

func meta(ns, name, uid string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: ns, Name: name, UID: types.UID(uid)}
}

func fullFixture() *fixture {
	return &fixture{
		accounts: map[string]*corev1.ServiceAccount{"ns/a": {ObjectMeta: meta("ns", "a", "ua")}},
		pods:     map[string]*corev1.Pod{"ns/p": {ObjectMeta: meta("ns", "p", "up")}},
		secrets:  map[string]*corev1.Secret{"ns/s": {ObjectMeta: meta("ns", "s", "us")}},
		nodes:    map[string]*corev1.Node{"n": {ObjectMeta: meta("", "n", "un")}},
	}
}

func newAuthenticator(t testing.TB, objects *fixture, now time.Time, keys ...crypto.Signer) *satoken.Authenticator {
	t.Helper()
	tokens, err := satoken.New(satoken.Config{
		Issuers: []string{issuer, "https://old"}, Keys: publicKeys(t, keys...), Audiences: []string{audience}, Lookup: true,
		Objects: objects, Now: func() time.Time { return now },
	})
	if err != nil {
		t.Fatal(err)
	}
	return tokens
}

func sign(t testing.TB, key crypto.Signer, change func(*satoken.Request)) string {
	t.Helper()
	signer, err := satoken.NewSigner(issuer, key)
	if err != nil {
		t.Fatal(err)
	}
	req := satoken.Request{
		Binding:   satoken.Binding{Namespace: "ns", ServiceAccount: satoken.Ref{Name: "a", UID: "ua"}},
		Audiences: []string{audience}, IssuedAt: start, Lifetime: time.Hour,
	}
	if change != nil {
		change(&req)
	}
	token, id, err := signer.Sign(req)
	if err != nil || id == "" {
		t.Fatalf("sign: %v, id %q, want no error, a non-empty id", err, id)
	}
	return token
}

// TestEveryKeySignsAndVerifies checks tokens of each supported key type.
func TestEveryKeySignsAndVerifies(t *testing.T) {
	for name, key := range map[string]crypto.Signer{
		"RS256": rsaKey(),
		"ES256": ecKey(t, elliptic.P256()),
		"ES384": ecKey(t, elliptic.P384()),
		"ES512": ecKey(t, elliptic.P521()),
	} {
		t.Run(name, func(t *testing.T) {
			token := sign(t, key, nil)
			parsed, _, err := jwt.NewParser().ParseUnverified(token, &satoken.Claims{})
			if err != nil || parsed.Header["alg"] != name || parsed.Header["kid"] == "" {
				t.Fatalf("got header %v, %v, want algorithm %v and a key ID", parsed.Header, err, name)
			}
			resp, ok, err := newAuthenticator(t, fullFixture(), start, key).AuthenticateToken(t.Context(), token, nil)
			if !ok || resp.User.Name != "system:serviceaccount:ns:a" || resp.User.UID != "ua" {
				t.Fatalf("got %+v, %v, want ServiceAccount ns/a with UID ua", resp, err)
			}
			if ids := resp.User.Extra[authenticator.ExtraCredentialID]; len(ids) != 1 || !strings.HasPrefix(ids[0], "JTI=") {
				t.Errorf("got credential IDs %q, want one that begins with JTI=", ids)
			}
			if want := start.Add(time.Hour + satoken.Leeway); !resp.Expires.Equal(want) {
				t.Errorf("expires %v, want %v", resp.Expires, want)
			}
			if _, ok, err := newAuthenticator(t, fullFixture(), start, ecKey(t, elliptic.P256()),
				ecKey(t, elliptic.P384()), ecKey(t, elliptic.P521())).AuthenticateToken(t.Context(), token,
				nil); ok || err == nil {
				t.Errorf("another key verified the token: %v, want false, an error", err)
			}
		})
	}
}

// TestBoundTokenIsInvalidAfterItsObjectsAreDeleted checks bound tokens whose account or object
// exists, is replaced or is deleted.
func TestBoundTokenIsInvalidAfterItsObjectsAreDeleted(t *testing.T) {
	key := rsaKey()
	pod := func(r *satoken.Request) {
		r.Binding.Pod = &satoken.Ref{Name: "p", UID: "up"}
		r.Binding.Node = &satoken.Ref{Name: "gone", UID: "x"} // recorded, not checked
	}
	secret := func(r *satoken.Request) { r.Binding.Secret = &satoken.Ref{Name: "s", UID: "us"} }
	node := func(r *satoken.Request) { r.Binding.Node = &satoken.Ref{Name: "n", UID: "un"} }
	deleted := func(o *metav1.ObjectMeta, at time.Time) { o.DeletionTimestamp = &metav1.Time{Time: at} }
	for name, test := range map[string]struct {
		request func(*satoken.Request)
		change  func(*fixture)
		age     time.Duration // after the token was issued
		err     string        // empty if the token is valid
		expires time.Duration // after the token was issued, with the leeway; 0 for an hour
	}{
		"account alone":         {},
		"to a pod":              {request: pod},
		"to a secret":           {request: secret},
		"to a node":             {request: node},
		"no account":            {change: func(w *fixture) { w.accounts = nil }, err: "does not exist"},
		"account was recreated": {change: func(w *fixture) { w.accounts["ns/a"].UID = "other" }, err: "does not match claim"},
		"account being deleted": {
			change:  func(w *fixture) { deleted(&w.accounts["ns/a"].ObjectMeta, start) },
			age:     59 * time.Second,
			expires: time.Nanosecond,
		},
		"account deleted": {
			change: func(w *fixture) { deleted(&w.accounts["ns/a"].ObjectMeta, start) },
			age:    61 * time.Second,
			err:    "has been deleted",
		},
		"no pod":            {request: pod, change: func(w *fixture) { w.pods = nil }, err: `pod "p"`},
		"pod was recreated": {request: pod, change: func(w *fixture) { w.pods["ns/p"].UID = "other" }, err: "pod UID"},
		"pod terminating": {
			request: pod,
			change:  func(w *fixture) { deleted(&w.pods["ns/p"].ObjectMeta, start.Add(time.Minute)) },
			age:     119 * time.Second,
			expires: time.Minute,
		},
		"pod terminated": {
			request: pod,
			change:  func(w *fixture) { deleted(&w.pods["ns/p"].ObjectMeta, start.Add(time.Minute)) },
			age:     121 * time.Second,
			err:     "has been deleted",
		},
		"no secret": {request: secret, change: func(w *fixture) { w.secrets = nil }, err: `secret "s"`},
		"secret was recreated": {
			request: secret,
			change:  func(w *fixture) { w.secrets["ns/s"].UID = "other" },
			err:     "secret UID",
		},
		"no node":                {request: node, change: func(w *fixture) { w.nodes = nil }, err: `node "n"`},
		"node was recreated":     {request: node, change: func(w *fixture) { w.nodes["n"].UID = "other" }, err: "node UID"},
		"lookup fails":           {change: func(w *fixture) { w.down = errors.New("no connection") }, err: "no connection"},
		"in the leeway":          {age: time.Hour + 59*time.Second},
		"expired":                {age: time.Hour + 61*time.Second, err: "has expired"},
		"not yet valid":          {age: -61 * time.Second, err: "not valid yet"},
		"clocks differ a little": {age: -59 * time.Second},
		"audience of another":    {request: func(r *satoken.Request) { r.Audiences = []string{"vault"} }, err: "audiences"},
		"several audiences":      {request: func(r *satoken.Request) { r.Audiences = []string{"vault", audience} }},
		"no uid": {
			request: func(r *satoken.Request) { r.Binding.ServiceAccount.UID = "" },
			err:     "names no service account",
		},
		"no namespace": {request: func(r *satoken.Request) { r.Binding.Namespace = "" }, err: "names no service account"},
	} {
		t.Run(name, func(t *testing.T) {
			w := fullFixture()
			if test.change != nil {
				test.change(w)
			}
			resp, ok, err := newAuthenticator(t, w, start.Add(test.age), key).AuthenticateToken(t.Context(),
				sign(t, key, test.request), nil)
			if test.err != "" {
				if ok || err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("got %v, %v, want %q", ok, err, test.err)
				}
				if got := errors.Is(err, authenticator.ErrUnavailable); got != (w.down != nil) {
					t.Errorf("error %v matches ErrUnavailable: got %t, want %t", err, got, !got)
				}
				return
			}
			if !ok || err != nil {
				t.Fatalf("got %v, %v, want true, no error", ok, err)
			}
			life := time.Hour
			if test.expires != 0 {
				life = test.expires.Truncate(time.Second)
			}
			if want := start.Add(life + satoken.Leeway); !resp.Expires.Equal(want) {
				t.Errorf("expires %v, want %v", resp.Expires, want)
			}
		})
	}
}

// TestUserOfBoundTokenHasPodAndNodeAsExtra checks that the user has the pod and the node of the
// token as extra fields.
func TestUserOfBoundTokenHasPodAndNodeAsExtra(t *testing.T) {
	key := rsaKey()
	token := sign(t, key, func(r *satoken.Request) {
		r.Binding.Pod, r.Binding.Node = &satoken.Ref{Name: "p", UID: "up"}, &satoken.Ref{Name: "n", UID: "un"}
	})
	resp, ok, err := newAuthenticator(t, fullFixture(), start, key).AuthenticateToken(t.Context(), token, nil)
	if !ok {
		t.Fatal(err)
	}
	for k, want := range map[string]string{"pod-name": "p", "pod-uid": "up", "node-name": "n", "node-uid": "un"} {
		if got := resp.User.Extra["authentication.kubernetes.io/"+k]; len(got) != 1 || got[0] != want {
			t.Errorf("%s is %q, want %q", k, got, want)
		}
	}
}

// TestTokenIsValidOnlyForItsAudiences checks that one of the requested audiences must be in the
// token.
func TestTokenIsValidOnlyForItsAudiences(t *testing.T) {
	key := rsaKey()
	tokens := newAuthenticator(t, fullFixture(), start, key)
	token := sign(t, key, func(response *satoken.Request) { response.Audiences = []string{"x", "y"} })
	if _, ok, err := tokens.AuthenticateToken(t.Context(), token, nil); ok || err == nil {
		t.Errorf("token for the server: %v, want false, an error", err)
	}
	response, ok, err := tokens.AuthenticateToken(t.Context(), token, []string{"z", "y"})
	if !ok || len(response.Audiences) != 1 || response.Audiences[0] != "y" {
		t.Errorf("got %+v, %v, want the audience y", response, err)
	}
}

// TestUsesAreObserved checks that stale tokens are observed as stale and get an audit annotation.
func TestUsesAreObserved(t *testing.T) {
	key := rsaKey()
	var seen []satoken.Use
	now := start
	tokens, err := satoken.New(satoken.Config{
		Issuers: []string{issuer}, Keys: publicKeys(t, key), Objects: fullFixture(), Now: func() time.Time { return now },
		Observe: func(u satoken.Use) { seen = append(seen, u) },
	})
	if err != nil {
		t.Fatal(err)
	}
	token := sign(t, key, func(response *satoken.Request) { response.WarnAfter = time.Minute })
	for _, now = range []time.Time{start, start.Add(2 * time.Minute)} {
		response, ok, err := tokens.AuthenticateToken(t.Context(), token, nil)
		if !ok {
			t.Fatal(err)
		}
		if got, want := response.AuditAnnotations["authentication.k8s.io/stale-token"], "subject: system:serviceaccount:ns:a, seconds after warning threshold: 60"; now == start && got != "" || now != start && got != want {
			t.Errorf("got audit annotation %q, want %q after the warning threshold only", got, want)
		}
	}
	if len(seen) != 2 || seen[0] != satoken.UseValid || seen[1] != satoken.UseStale {
		t.Errorf("got uses %v, want %v, then %v", seen, satoken.UseValid, satoken.UseStale)
	}
}

// TestSplitUsernameAcceptsOnlyServiceAccounts checks that only names that a service account can
// have are split.
func TestSplitUsernameAcceptsOnlyServiceAccounts(t *testing.T) {
	for user, want := range map[string]bool{
		satoken.Username("ns", "a"): true, "system:serviceaccount:ns:": false, "system:serviceaccount::a": false,
		"system:serviceaccount:ns:a:b": false, "system:serviceaccount:ns": false, "alice": false,
		"ns:a": false, "system:node:a": false, "system:serviceaccounts:ns:a": false,
		"system:serviceaccount:ns:A":   false,
		"system:serviceaccount:n/s:a":  false,
		"system:serviceaccount:n.s:a":  false,
		"system:serviceaccount:ns:a b": false,
	} {
		ns, name, ok := satoken.SplitUsername(user)
		if ok != want || ok && (ns != "ns" || name != "a") {
			t.Errorf("%q: got %q, %q, %t, want a valid name: %t", user, ns, name, ok, want)
		}
	}
}
