// Package imagepolicy asks a service whether pods may run their images
// (imagepolicy.k8s.io/v1alpha1). It caches responses for a while and retries failed calls. If the
// service stays unreachable, the configuration decides whether pods are rejected or admitted. An
// audit annotation and an annotation of the pod mark pods that were admitted without a review.
package imagepolicy

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	imagepolicyv1alpha1 "k8s.io/api/imagepolicy/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/cache"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/proxy/webhookclient"
	"binnacle/services/apiserver/internal/request"
)

// Name is the name of the plugin in flags and configuration.
const Name = "ImagePolicyWebhook"

const (
	// annotationMarker occurs in the keys of those pod annotations that the service receives.
	annotationMarker = ".image-policy.k8s.io/"
	// auditPrefix is the prefix of the service's audit annotations.
	auditPrefix = "imagepolicywebhook.image-policy.k8s.io/"
	// failedOpen is the key, after auditPrefix, of the audit annotation for a pod that was admitted
	// without a review.
	failedOpen = "failed-open"
	// failedOpenAnnotation is the key of the same annotation on the pod.
	failedOpenAnnotation = "alpha.image-policy.k8s.io/failed-open"
)

const (
	maxTries = 5
	// timeout bounds each try. The service receives it as a query parameter.
	timeout     = 30 * time.Second
	maxResponse = 1 << 20 // bytes
	cacheSize   = 1024    // cached responses
)

// Plugin implements admission.Validator.
type Plugin struct {
	config    *Configuration
	service   *webhookclient.Service
	responses *cache.LRUExpireCache // *ImageReviewStatus by the SHA-256 of the ImageReviewSpec
	// pause waits between tries.
	pause func(context.Context, time.Duration) error
}

// Clock is the time source of a Plugin.
type Clock struct {
	Now func() time.Time
	// Pause sleeps for a duration. It returns early, with an error, if the context ends.
	Pause func(context.Context, time.Duration) error
}

// RealClock returns the system clock.
func RealClock() Clock { return Clock{Now: time.Now, Pause: sleep} }

// sleep implements Clock.Pause.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// cacheClock adapts Clock.Now to the clock interface of the cache.
type cacheClock func() time.Time

func (n cacheClock) Now() time.Time { return n() }

// New returns the plugin. The caller must close it.
func New(configuration *Configuration, clock Clock) (*Plugin, error) {
	service, err := webhookclient.Load(configuration.KubeconfigFile, nil)
	if err != nil {
		return nil, err
	}
	return &Plugin{
		config:    configuration,
		service:   service,
		responses: cache.NewLRUExpireCacheWithClock(cacheSize, cacheClock(clock.Now)),
		pause:     clock.Pause,
	}, nil
}

// Close closes the connections.
func (p *Plugin) Close() { p.service.Close() }

// CallsExternal implements admission.ExternalCaller.
func (p *Plugin) CallsExternal(_ context.Context, r *admission.Request) bool {
	return r.IsResource("", "pods") && r.Operation == admission.Update &&
		(r.Subresource == "" || r.Subresource == "ephemeralcontainers")
}

// Validate implements admission.Validator.
func (p *Plugin) Validate(ctx context.Context, req *admission.Request) error {
	if !req.IsResource("", "pods") || req.Operation != admission.Create && req.Operation != admission.Update {
		return nil
	}
	pod, ok := req.Object.(*corev1.Pod)
	if !ok {
		return nil // a subresource with another kind
	}
	spec := imagepolicyv1alpha1.ImageReviewSpec{Namespace: req.Namespace}
	switch req.Subresource {
	case "":
		for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
			for i := range list {
				spec.Containers = append(spec.Containers, imagepolicyv1alpha1.ImageReviewContainerSpec{Image: list[i].Image})
			}
		}
	case "ephemeralcontainers":
		for i := range pod.Spec.EphemeralContainers {
			spec.Containers = append(spec.Containers,
				imagepolicyv1alpha1.ImageReviewContainerSpec{Image: pod.Spec.EphemeralContainers[i].Image})
		}
	default:
		return nil
	}
	spec.Annotations = maps.Clone(pod.Annotations)
	maps.DeleteFunc(spec.Annotations, func(k, _ string) bool { return !strings.Contains(k, annotationMarker) })
	if err := p.review(ctx, req, pod, spec); err != nil {
		return req.Forbidden(err)
	}
	return nil
}

// review returns an error if the service denies the images of a pod. If the service cannot be
// asked, DefaultAllow decides.
func (p *Plugin) review(
	ctx context.Context,
	req *admission.Request,
	pod *corev1.Pod,
	spec imagepolicyv1alpha1.ImageReviewSpec,
) error {
	reviewed, err := p.reviewStatus(ctx, spec)
	if err != nil {
		if !p.config.DefaultAllow || ctx.Err() != nil {
			return err
		}
		req.Annotate(auditPrefix+failedOpen, "true")
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, failedOpenAnnotation, "true")
		return nil
	}
	for k, v := range reviewed.AuditAnnotations {
		req.Annotate(auditPrefix+k, v)
	}
	switch {
	case reviewed.Allowed:
		return nil
	case reviewed.Reason != "":
		return fmt.Errorf("image policy webhook backend denied one or more images: %s", reviewed.Reason)
	}
	return errors.New("one or more images rejected by webhook backend")
}

// reviewStatus returns the service's response to spec, from the cache if it has one.
func (p *Plugin) reviewStatus(
	ctx context.Context,
	spec imagepolicyv1alpha1.ImageReviewSpec,
) (*imagepolicyv1alpha1.ImageReviewStatus, error) {
	data, err := json.Marshal(spec)
	if err != nil {
		return nil, err
	}
	key := sha256.Sum256(data) // data itself can be as large as a megabyte
	if status, ok := p.responses.Get(key); ok {
		return status.(*imagepolicyv1alpha1.ImageReviewStatus), nil
	}
	body, err := json.Marshal(&imagepolicyv1alpha1.ImageReview{
		TypeMeta: metav1.TypeMeta{Kind: "ImageReview", APIVersion: imagepolicyv1alpha1.SchemeGroupVersion.String()}, Spec: spec,
	})
	if err != nil {
		return nil, err
	}
	status, err := p.callWithRetry(ctx, body)
	if err != nil {
		return nil, err
	}
	ttl := p.config.DenyTTL
	if status.Allowed {
		ttl = p.config.AllowTTL
	}
	if ttl > 0 {
		p.responses.Add(key, status, ttl)
	}
	return status, nil
}

// callWithRetry calls the service until it responds, a retry cannot help, or maxTries is reached.
// The request releases its seats while it waits.
func (p *Plugin) callWithRetry(ctx context.Context, body []byte) (*imagepolicyv1alpha1.ImageReviewStatus, error) {
	defer request.Suspend(ctx)()
	backoff := wait.Backoff{Duration: p.config.RetryBackoff, Factor: 1.5, Jitter: 0.2, Steps: maxTries}
	for try := 1; ; try++ {
		response, err := p.send(ctx, body)
		if err == nil || !mayRetry(err) || try == maxTries || p.config.RetryBackoff == 0 {
			return response, err
		}
		if p.pause(ctx, backoff.Step()) != nil {
			return nil, err // the last error of the service says more than the error of the context
		}
	}
}

// mayRetry reports whether a retry may succeed after an error.
func mayRetry(err error) bool {
	_, delay := apierrors.SuggestsClientDelay(err)
	return delay || utilnet.IsConnectionReset(err) || utilnet.IsHTTP2ConnectionLost(err) ||
		apierrors.IsInternalError(err) || apierrors.IsTimeout(err) || apierrors.IsTooManyRequests(err)
}

// send calls the service once. Errors have the wording of Kubernetes.
func (p *Plugin) send(ctx context.Context, body []byte) (*imagepolicyv1alpha1.ImageReviewStatus, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, p.service.URL+"?timeout="+timeout.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "application/json, */*")
	resp, err := p.service.Client.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxResponse+1))
	switch {
	case err != nil:
		return nil, err
	case len(data) > maxResponse:
		return nil, fmt.Errorf("the response of %s exceeds %d bytes", p.service.URL, maxResponse)
	case resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusMultipleChoices:
		return nil, apierrors.NewGenericServerResponse(
			resp.StatusCode,
			http.MethodPost,
			schema.GroupResource{},
			"",
			strings.TrimSpace(string(data)),
			0,
			true,
		)
	}
	var review imagepolicyv1alpha1.ImageReview
	if err := p.service.Decode(data, &review); err != nil {
		return nil, fmt.Errorf("the response of %s: %w", p.service.URL, err)
	}
	// A response without kind and apiVersion has the requested ones.
	gvk := imagepolicyv1alpha1.SchemeGroupVersion.WithKind("ImageReview")
	if review.Kind != "" && review.Kind != gvk.Kind || review.APIVersion != "" && review.APIVersion != gvk.GroupVersion().String() {
		return nil, fmt.Errorf("the response of %s is %s %s, want %s", p.service.URL, review.APIVersion, review.Kind, gvk)
	}
	return &review.Status, nil
}
