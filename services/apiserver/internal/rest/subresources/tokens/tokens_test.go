package tokens

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"binnacle/libs/satoken"
	"binnacle/services/apiserver/internal/request/requesttest"
)

// fakeObjects returns an object for each name except "none". failure, if set, is the error of all
// reads.
type fakeObjects struct{ failure error }

func (o fakeObjects) newMeta(kind, name string) (metav1.ObjectMeta, error) {
	if o.failure != nil {
		return metav1.ObjectMeta{}, o.failure
	}
	if name == "none" {
		return metav1.ObjectMeta{}, apierrors.NewNotFound(corev1.Resource(kind), name)
	}
	return metav1.ObjectMeta{Name: name, UID: types.UID(kind + "-uid")}, nil
}

func (o fakeObjects) ServiceAccount(_ context.Context, _, name string) (*corev1.ServiceAccount, error) {
	m, err := o.newMeta("serviceaccounts", name)
	return &corev1.ServiceAccount{ObjectMeta: m}, err
}

// Pod returns a pod with the node that its name ends with: pod-on-node.
func (o fakeObjects) Pod(_ context.Context, _, name string) (*corev1.Pod, error) {
	m, err := o.newMeta("pods", name)
	_, node, _ := strings.Cut(name, "-on-")
	return &corev1.Pod{ObjectMeta: m, Spec: corev1.PodSpec{ServiceAccountName: "sa", NodeName: node}}, err
}

func (o fakeObjects) Secret(_ context.Context, _, name string) (*corev1.Secret, error) {
	m, err := o.newMeta("secrets", name)
	return &corev1.Secret{ObjectMeta: m}, err
}

func (o fakeObjects) Node(_ context.Context, name string) (*corev1.Node, error) {
	if name == "lost" {
		return nil, errors.New("cannot read node")
	}
	m, err := o.newMeta("nodes", name)
	return &corev1.Node{ObjectMeta: m}, err
}

// privateClaims holds the private claims of a token.
type privateClaims struct {
	Secret, Pod, Node *satoken.Ref
	WarnAfter         int64
}

// issueToken requests a token. It returns the token's private claims and its lifetime in seconds.
func issueToken(
	t *testing.T,
	issuer *Issuer,
	seconds int64,
	ref *authenticationv1.BoundObjectReference,
	audiences ...string,
) (privateClaims, int64, error) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	if issuer.Signer, err = satoken.NewSigner("issuer", key); err != nil {
		t.Fatal(err)
	}
	if issuer.Objects == nil {
		issuer.Objects = fakeObjects{}
	}
	issuer.Audiences = []string{"own", "own too"}
	if audiences == nil {
		audiences = issuer.Audiences
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sa", UID: "u"}}
	req := &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds, BoundObjectRef: ref, Audiences: audiences},
	}
	if err := issuer.issueToken(t.Context(), account, req, time.Unix(1000, 0)); err != nil {
		if req.Status.Token != "" {
			t.Errorf("got a token together with error %v, want no token", err)
		}
		return privateClaims{}, 0, err
	}
	parts := strings.Split(req.Status.Token, ".")
	raw, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var claims struct {
		Exp, Iat   int64
		Kubernetes privateClaims `json:"kubernetes.io"`
	}
	if err := json.Unmarshal(raw, &claims); err != nil {
		t.Fatal(err)
	}
	if expires := req.Status.ExpirationTimestamp.Unix(); expires != 1000+*req.Spec.ExpirationSeconds {
		t.Errorf("got expiration at %d, want %d", expires, 1000+*req.Spec.ExpirationSeconds)
	}
	return claims.Kubernetes, claims.Exp - claims.Iat, nil
}

// boundObject returns the reference of a token request to an object; uid may be empty.
func boundObject(apiVersion, kind, name, uid string) *authenticationv1.BoundObjectReference {
	return &authenticationv1.BoundObjectReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(uid)}
}

// TestTokenIsBoundToRequestedObject checks the private claims of tokens that are bound to an object.
// A pod adds its node.
func TestTokenIsBoundToRequestedObject(t *testing.T) {
	claim := func(name, uid string) *satoken.Ref { return &satoken.Ref{Name: name, UID: uid} }
	for name, test := range map[string]struct {
		ref  *authenticationv1.BoundObjectReference
		want privateClaims
	}{
		"no object":            {want: privateClaims{}},
		"a pod without a node": {ref: boundObject("v1", "Pod", "p", ""), want: privateClaims{Pod: claim("p", "pods-uid")}},
		"a pod of a node": {ref: boundObject("v1", "Pod", "p-on-n", "pods-uid"),
			want: privateClaims{Pod: claim("p-on-n", "pods-uid"), Node: claim("n", "nodes-uid")}},
		"a pod of a missing node": {ref: boundObject("v1", "Pod", "p-on-none", ""),
			want: privateClaims{Pod: claim("p-on-none", "pods-uid"), Node: claim("none", "")}},
		"a secret": {ref: boundObject("v1", "Secret", "s", "secrets-uid"), want: privateClaims{Secret: claim("s", "secrets-uid")}},
		"a node":   {ref: boundObject("v1", "Node", "n", "nodes-uid"), want: privateClaims{Node: claim("n", "nodes-uid")}},
	} {
		got, _, err := issueToken(t, &Issuer{}, 3600, test.ref)
		if err != nil || !reflect.DeepEqual(got, test.want) {
			t.Errorf("token bound to %s: got claims %+v, error %v, want %+v", name, got, err, test.want)
		}
	}
}

// TestTokenIsNotBoundToOtherObjects checks the errors of token requests whose object does not exist,
// has another UID or kind, or cannot be read.
func TestTokenIsNotBoundToOtherObjects(t *testing.T) {
	failure := apierrors.NewTooManyRequests("later", 1)
	for name, test := range map[string]struct {
		ref        *authenticationv1.BoundObjectReference
		failure    error // of all reads
		isExpected func(error) bool
	}{
		"no such pod":               {ref: boundObject("v1", "Pod", "none", ""), isExpected: apierrors.IsNotFound},
		"no such secret":            {ref: boundObject("v1", "Secret", "none", ""), isExpected: apierrors.IsNotFound},
		"no such node":              {ref: boundObject("v1", "Node", "none", ""), isExpected: apierrors.IsNotFound},
		"another pod":               {ref: boundObject("v1", "Pod", "p", "x"), isExpected: apierrors.IsConflict},
		"another secret":            {ref: boundObject("v1", "Secret", "s", "x"), isExpected: apierrors.IsConflict},
		"another node":              {ref: boundObject("v1", "Node", "n", "x"), isExpected: apierrors.IsConflict},
		"a pod of another group":    {ref: boundObject("apps/v1", "Pod", "p", ""), isExpected: apierrors.IsBadRequest},
		"a secret of another group": {ref: boundObject("apps/v1", "Secret", "s", ""), isExpected: apierrors.IsBadRequest},
		"a node of another group":   {ref: boundObject("apps/v1", "Node", "n", ""), isExpected: apierrors.IsBadRequest},
		"a config map":              {ref: boundObject("v1", "ConfigMap", "m", ""), isExpected: apierrors.IsBadRequest},
		"a pod, unreadable":         {ref: boundObject("v1", "Pod", "p", ""), failure: failure, isExpected: apierrors.IsTooManyRequests},
		"a secret, unreadable":      {ref: boundObject("v1", "Secret", "s", ""), failure: failure, isExpected: apierrors.IsTooManyRequests},
		"a node, unreadable":        {ref: boundObject("v1", "Node", "n", ""), failure: failure, isExpected: apierrors.IsTooManyRequests},
		"a pod of an unreadable node": {
			ref:        boundObject("v1", "Pod", "p-on-lost", ""),
			isExpected: func(err error) bool { return err != nil && err.Error() == "cannot read node" },
		},
	} {
		if _, _, err := issueToken(t, &Issuer{Objects: fakeObjects{test.failure}}, 3600, test.ref); !test.isExpected(err) {
			t.Errorf("token bound to %s: got error %v, want an error of another kind", name, err)
		}
	}
}

// TestTokenLifetimeIsLimitedOrExtended checks the requested lifetime, the maximum, and the extension for old clients
// in pods.
func TestTokenLifetimeIsLimitedOrExtended(t *testing.T) {
	const year = 365 * 24 * 3600
	pod := boundObject("v1", "Pod", "p", "")
	for name, test := range map[string]struct {
		issuer    Issuer
		seconds   int64
		ref       *authenticationv1.BoundObjectReference
		audiences []string
		want      int64 // lifetime in seconds
	}{
		"lifetime as requested":       {issuer: Issuer{}, seconds: 1 << 31, want: 1 << 31},
		"lifetime cut to the maximum": {issuer: Issuer{MaxLifetime: time.Hour}, seconds: 3601, want: 3600},
		"lifetime below the maximum":  {issuer: Issuer{MaxLifetime: time.Hour}, seconds: 3599, want: 3599},
		"marked lifetime is extended": {
			issuer:  Issuer{ExtendLifetime: true, MaxLifetime: 2 * time.Hour},
			seconds: 3607,
			ref:     pod,
			want:    year,
		},
		"marked lifetime with extension disabled": {issuer: Issuer{}, seconds: 3607, ref: pod, want: 3607},
		"marked lifetime without a bound pod":     {issuer: Issuer{ExtendLifetime: true}, seconds: 3607, want: 3607},
		"other lifetime is not extended":          {issuer: Issuer{ExtendLifetime: true}, seconds: 3608, ref: pod, want: 3608},
		"marked lifetime for one of the server's audiences": {
			issuer:    Issuer{ExtendLifetime: true},
			seconds:   3607,
			ref:       pod,
			audiences: []string{"own"},
			want:      year,
		},
		"marked lifetime for another audience too": {
			issuer:    Issuer{ExtendLifetime: true},
			seconds:   3607,
			ref:       pod,
			audiences: []string{"own", "vault"},
			want:      3607,
		},
		"maximum equals the marked lifetime": {
			issuer:  Issuer{ExtendLifetime: true, MaxLifetime: 3607 * time.Second},
			seconds: 86400,
			ref:     pod,
			want:    year,
		},
	} {
		i := test.issuer
		got, lifetime, err := issueToken(t, &i, test.seconds, test.ref, test.audiences...)
		if err != nil || lifetime != test.want {
			t.Errorf("%s: got %d s, %v, want %d s", name, lifetime, err, test.want)
		}
		const markedExpiry = 1000 + 3607 // tokens are issued at 1000
		if isExtended := test.want == year; isExtended != (got.WarnAfter == markedExpiry) {
			t.Errorf("%s: got WarnAfter %d; want %d: %t", name, got.WarnAfter, markedExpiry, isExtended)
		}
	}
}

// TestLocalSigningNeedsPermit checks that only a signature of this process waits for the permit of
// large requests. The request waits for other signers without one.
func TestLocalSigningNeedsPermit(t *testing.T) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := satoken.NewSigner("issuer", key)
	if err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "sa", UID: "u"}}
	for _, test := range []struct {
		name                         string
		local, admitted              bool
		estimates, suspends, rejects int
	}{
		{name: "signer in this process", local: true, admitted: true, estimates: 1},
		{name: "signer in this process, no permit free", local: true, estimates: 1, rejects: 1},
		{name: "signer in another process", suspends: 1},
	} {
		estimates, suspends, rejects := 0, 0, 0
		work := &requesttest.Work{
			OnEstimate: func(int) bool { estimates++; return test.admitted },
			OnSuspend:  func() func() { suspends++; return func() {} },
		}
		seconds := int64(3600)
		req := &authenticationv1.TokenRequest{
			Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: &seconds, Audiences: []string{"a"}},
		}
		issuer := &Issuer{Signer: signer, Local: test.local, Objects: fakeObjects{}}
		err := issuer.issueToken(work.With(t.Context()), account, req, time.Unix(1000, 0))
		if apierrors.IsTooManyRequests(err) {
			rejects++
		} else if err != nil {
			t.Errorf("%s: %v", test.name, err)
		}
		if estimates != test.estimates || suspends != test.suspends || rejects != test.rejects {
			t.Errorf("%s: got %d estimates, %d suspensions, %d rejections, want %d, %d, %d",
				test.name, estimates, suspends, rejects, test.estimates, test.suspends, test.rejects)
		}
	}
}
