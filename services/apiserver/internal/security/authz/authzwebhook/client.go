package authzwebhook

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	authorizationv1beta1 "k8s.io/api/authorization/v1beta1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/rbac"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
)

const (
	// maxResponse bounds the size of a response in bytes.
	maxResponse = 1 << 20
	// maxAttempts bounds the attempts. The delay between them starts with firstRetryDelay and
	// doubles.
	maxAttempts     = 4
	firstRetryDelay = 50 * time.Millisecond
)

// errReviewTooLarge reports a review that exceeds the limit of the service. A client can cause it
// with a long path or selector.
var errReviewTooLarge = errors.New("the request is too large for a review")

// client sends reviews.
type client struct {
	*webhookclient.Service
	usesV1 bool
}

// newClient reads the kubeconfig of a service.
func newClient(file, apiVersion string, dial webhookclient.Dial) (*client, error) {
	service, err := webhookclient.Load(file, dial)
	if err != nil {
		return nil, err
	}
	return &client{Service: service, usesV1: apiVersion != authorizationv1beta1.SchemeGroupVersion.Version}, nil
}

// serviceResponse is the response of a service.
type serviceResponse struct {
	status authorizationv1.SubjectAccessReviewStatus
	// position is the position of the policy that the decision is based on; nil if unknown.
	position *rbac.Position
	// noStore requests that the decision is not cached.
	noStore bool
}

// reviewWithRetry sends a review, repeatedly if the service is temporarily unavailable, until ctx
// ends.
func (c *client) reviewWithRetry(ctx context.Context, spec authorizationv1.SubjectAccessReviewSpec) (serviceResponse, error) {
	body, err := json.Marshal(c.newReview(spec))
	if err != nil {
		return serviceResponse{}, err
	}
	pause := firstRetryDelay
	for attempt := 1; ; attempt++ {
		response, retry, err := c.sendReview(ctx, body)
		if err == nil || !retry || attempt == maxAttempts || ctx.Err() != nil {
			return response, err
		}
		t := time.NewTimer(pause)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return serviceResponse{}, errors.Join(ctx.Err(), err)
		}
		pause *= 2
	}
}

// newReview returns the review in the version that the service reads.
func (c *client) newReview(spec authorizationv1.SubjectAccessReviewSpec) any {
	if c.usesV1 {
		return &authorizationv1.SubjectAccessReview{
			TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1.SchemeGroupVersion.String(), Kind: "SubjectAccessReview"},
			Spec:     spec,
		}
	}
	spec1beta1 := authorizationv1beta1.SubjectAccessReviewSpec{User: spec.User, UID: spec.UID, Groups: spec.Groups}
	for k, v := range spec.Extra {
		if spec1beta1.Extra == nil {
			spec1beta1.Extra = map[string]authorizationv1beta1.ExtraValue{}
		}
		spec1beta1.Extra[k] = authorizationv1beta1.ExtraValue(v)
	}
	if r := spec.ResourceAttributes; r != nil {
		spec1beta1.ResourceAttributes = &authorizationv1beta1.ResourceAttributes{
			Namespace:     r.Namespace,
			Verb:          r.Verb,
			Group:         r.Group,
			Version:       r.Version,
			Resource:      r.Resource,
			Subresource:   r.Subresource,
			Name:          r.Name,
			FieldSelector: r.FieldSelector,
			LabelSelector: r.LabelSelector,
		}
	}
	if r := spec.NonResourceAttributes; r != nil {
		spec1beta1.NonResourceAttributes = &authorizationv1beta1.NonResourceAttributes{Path: r.Path, Verb: r.Verb}
	}
	return &authorizationv1beta1.SubjectAccessReview{
		TypeMeta: metav1.TypeMeta{APIVersion: authorizationv1beta1.SchemeGroupVersion.String(), Kind: "SubjectAccessReview"},
		Spec:     spec1beta1,
	}
}

// sendReview sends a review once. retry reports whether another attempt may succeed.
func (c *client) sendReview(ctx context.Context, body []byte) (response serviceResponse, retry bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL, bytes.NewReader(body))
	if err != nil {
		return serviceResponse{}, false, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json")
	resp, err := c.Client.Do(req)
	if err != nil {
		return serviceResponse{}, true, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	if err != nil {
		return serviceResponse{}, true, fmt.Errorf("response of %s: %w", c.URL, err)
	}
	if resp.StatusCode == http.StatusRequestEntityTooLarge {
		return serviceResponse{}, false, errReviewTooLarge
	}
	if resp.StatusCode/100 != 2 {
		retry := resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests
		return serviceResponse{}, retry, fmt.Errorf("%s answers with status %d", c.URL, resp.StatusCode)
	}
	if len(data) > maxResponse {
		return serviceResponse{}, false, fmt.Errorf("response of %s exceeds %d bytes", c.URL, maxResponse)
	}
	// The status is equal in both versions.
	var review authorizationv1.SubjectAccessReview
	if err := c.Decode(data, &review); err != nil {
		return serviceResponse{}, false, fmt.Errorf("response of %s: %w", c.URL, err)
	}
	if expected := c.apiVersion(); review.Kind != "SubjectAccessReview" || review.APIVersion != expected {
		return serviceResponse{}, false, fmt.Errorf("response of %s is %s %s, want SubjectAccessReview %s",
			c.URL, review.Kind, review.APIVersion, expected)
	}
	response = serviceResponse{status: review.Status, noStore: strings.Contains(resp.Header.Get("Cache-Control"), "no-store")}
	if text := resp.Header.Get(rbac.PositionHeader); text != "" {
		p, err := rbac.ParsePosition(text)
		if err != nil { // the decision is valid, but the policy that it is based on is unknown
			response.noStore = true
		} else {
			response.position = &p
		}
	}
	return response, false, nil
}

// apiVersion returns the version of reviews that the service reads.
func (c *client) apiVersion() string {
	if c.usesV1 {
		return authorizationv1.SchemeGroupVersion.String()
	}
	return authorizationv1beta1.SchemeGroupVersion.String()
}
