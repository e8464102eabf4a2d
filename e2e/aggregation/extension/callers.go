package main

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"log"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// callers identifies and authorizes callers with the configuration that the API server publishes.
type callers struct {
	api    kubernetes.Interface
	policy atomic.Pointer[policy]
}

// policy is the published configuration.
type policy struct {
	cas                    *x509.CertPool
	names                  []string
	user, group, extraFrom []string
}

// caller is the user of a request.
type caller struct {
	name   string
	groups []string
	extra  map[string]authorizationv1.ExtraValue
}

var errUnknown = errors.New("the caller is unknown")

// follow reads the configuration every second until ctx ends.
func (c *callers) follow(ctx context.Context) {
	for ctx.Err() == nil {
		if p, err := c.read(ctx); err != nil {
			log.Print(err)
		} else {
			c.policy.Store(p)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Second):
		}
	}
}

func (c *callers) read(ctx context.Context) (*policy, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	cm, err := c.api.CoreV1().ConfigMaps("kube-system").Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	p := &policy{cas: x509.NewCertPool()}
	if !p.cas.AppendCertsFromPEM([]byte(cm.Data["requestheader-client-ca-file"])) {
		return nil, errors.New("no CA is published")
	}
	for key, into := range map[string]*[]string{
		"requestheader-allowed-names": &p.names, "requestheader-username-headers": &p.user,
		"requestheader-group-headers": &p.group, "requestheader-extra-headers-prefix": &p.extraFrom,
	} {
		if err := json.Unmarshal([]byte(cm.Data[key]), into); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// identify returns the user on whose behalf the API server calls. Other clients are rejected.
func (c *callers) identify(r *http.Request) (*caller, error) {
	p := c.policy.Load()
	if p == nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, errUnknown
	}
	leaf := r.TLS.PeerCertificates[0]
	if _, err := leaf.Verify(x509.VerifyOptions{Roots: p.cas, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}); err != nil {
		return nil, err
	}
	if len(p.names) > 0 && !slices.Contains(p.names, leaf.Subject.CommonName) {
		return nil, errUnknown
	}
	u := &caller{extra: map[string]authorizationv1.ExtraValue{}}
	for _, h := range p.user {
		if u.name == "" {
			u.name = r.Header.Get(h)
		}
	}
	if u.name == "" {
		return nil, errUnknown
	}
	for _, h := range p.group {
		u.groups = append(u.groups, r.Header.Values(h)...)
	}
	if !slices.Contains(u.groups, "system:authenticated") && !slices.Contains(u.groups, "system:unauthenticated") {
		u.groups = append(u.groups, "system:authenticated")
	}
	for _, prefix := range p.extraFrom {
		for name, values := range r.Header {
			if rest, ok := strings.CutPrefix(strings.ToLower(name), strings.ToLower(prefix)); ok {
				if key, err := url.PathUnescape(rest); err == nil {
					u.extra[key] = values
				}
			}
		}
	}
	return u, nil
}

// may returns an error unless the API server allows the caller's request.
func (c *callers) may(ctx context.Context, u *caller, what authorizationv1.SubjectAccessReviewSpec) error {
	what.User, what.Groups, what.Extra = u.name, u.groups, u.extra
	answer, err := c.api.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{Spec: what}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if !answer.Status.Allowed {
		return errors.New(u.name + " is not allowed: " + answer.Status.Reason)
	}
	return nil
}
