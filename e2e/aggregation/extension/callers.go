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
	clientCAs                                *x509.CertPool
	allowedNames                             []string
	userHeaders, groupHeaders, extraPrefixes []string
}

// caller is the user of a request.
type caller struct {
	name   string
	groups []string
	extra  map[string]authorizationv1.ExtraValue
}

var errUnknownCaller = errors.New("the caller is unknown")

// pollPolicy reads the configuration every second until ctx ends, and logs errors.
func (c *callers) pollPolicy(ctx context.Context) {
	for ctx.Err() == nil {
		if p, err := c.readPolicy(ctx); err != nil {
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

// readPolicy reads the published configuration.
func (c *callers) readPolicy(ctx context.Context) (*policy, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	configMap, err := c.api.CoreV1().ConfigMaps("kube-system").Get(ctx, "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	parsed := &policy{clientCAs: x509.NewCertPool()}
	if !parsed.clientCAs.AppendCertsFromPEM([]byte(configMap.Data["requestheader-client-ca-file"])) {
		return nil, errors.New("no CA is published")
	}
	for key, into := range map[string]*[]string{
		"requestheader-allowed-names": &parsed.allowedNames, "requestheader-username-headers": &parsed.userHeaders,
		"requestheader-group-headers": &parsed.groupHeaders, "requestheader-extra-headers-prefix": &parsed.extraPrefixes,
	} {
		if err := json.Unmarshal([]byte(configMap.Data[key]), into); err != nil {
			return nil, err
		}
	}
	return parsed, nil
}

// authenticate returns the user on whose behalf the API server sends a request. Clients without a
// certificate of the API server are rejected.
func (c *callers) authenticate(r *http.Request) (*caller, error) {
	current := c.policy.Load()
	if current == nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil, errUnknownCaller
	}
	leaf := r.TLS.PeerCertificates[0]
	if _, err := leaf.Verify(x509.VerifyOptions{
		Roots:     current.clientCAs,
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}); err != nil {
		return nil, err
	}
	if len(current.allowedNames) > 0 && !slices.Contains(current.allowedNames, leaf.Subject.CommonName) {
		return nil, errUnknownCaller
	}
	user := &caller{extra: map[string]authorizationv1.ExtraValue{}}
	for _, h := range current.userHeaders {
		if user.name == "" {
			user.name = r.Header.Get(h)
		}
	}
	if user.name == "" {
		return nil, errUnknownCaller
	}
	for _, h := range current.groupHeaders {
		user.groups = append(user.groups, r.Header.Values(h)...)
	}
	if !slices.Contains(user.groups, "system:authenticated") && !slices.Contains(user.groups, "system:unauthenticated") {
		user.groups = append(user.groups, "system:authenticated")
	}
	for _, prefix := range current.extraPrefixes {
		for name, values := range r.Header {
			if rest, ok := strings.CutPrefix(strings.ToLower(name), strings.ToLower(prefix)); ok {
				if key, err := url.PathUnescape(rest); err == nil {
					user.extra[key] = values
				}
			}
		}
	}
	return user, nil
}

// authorize returns an error unless the API server allows the caller's request.
func (c *callers) authorize(ctx context.Context, user *caller, spec authorizationv1.SubjectAccessReviewSpec) error {
	spec.User, spec.Groups, spec.Extra = user.name, user.groups, user.extra
	review, err := c.api.AuthorizationV1().SubjectAccessReviews().Create(ctx,
		&authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if !review.Status.Allowed {
		return errors.New(user.name + " is not allowed: " + review.Status.Reason)
	}
	return nil
}
