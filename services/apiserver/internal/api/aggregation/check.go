package aggregation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/transport"

	"binnacle/libs/api"
	apiregistrationv1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
	"binnacle/services/apiserver/internal/status"
)

const (
	// requestTimeout bounds one request to an extension server.
	requestTimeout = 5 * time.Second
	// minCheckInterval is the minimum interval between checks of a server.
	minCheckInterval = time.Second
	// describeWait is how long the write of a condition waits, at most, until the resources of the
	// server are known. So a client that waits for Available usually finds them in discovery.
	describeWait = time.Second
	// attempts is the number of failed requests after which a server is unavailable.
	attempts = 5
	// checkUser is the user name in requests to extension servers.
	checkUser = "system:kube-aggregator"
	// maxConditionMessage is the approximate maximum size of the message of a condition in bytes.
	// An error may quote a response head of a megabyte.
	maxConditionMessage = 4 << 10
	// failedDiscovery is the reason of the condition if the server does not respond successfully.
	failedDiscovery = "FailedDiscoveryCheck"
)

// startCheckIfDue reports whether the caller must check the remote now. If so, it records that a
// check is running; checkAndReport records its end.
func (r *remote) startCheckIfDue(now time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	requested := r.checkSoon
	r.checkSoon = false
	if r.checking {
		r.checkAgain = r.checkAgain || requested
		return false
	}
	if requested {
		if earliest := r.lastCheckAt.Add(minCheckInterval); earliest.Before(r.nextCheckAt) {
			r.nextCheckAt = earliest
		}
	}
	if now.Before(r.nextCheckAt) {
		return false
	}
	r.checking = true
	r.lastCheckAt = now
	return true
}

// delayCheck delays the first check of r, which replaces old, until minCheckInterval after the last
// check of old. So frequent changes of an APIService do not cause frequent checks.
func (r *remote) delayCheck(old *remote) {
	old.mu.Lock()
	defer old.mu.Unlock()
	r.lastCheckAt = old.lastCheckAt
	r.nextCheckAt = old.lastCheckAt.Add(minCheckInterval)
}

// scheduleCheck requests a check as soon as minCheckInterval permits.
func (r *remote) scheduleCheck() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.checkSoon = true
}

// setStored records the condition Available in the stored APIService, which may be nil. If it
// differs from the result of the last check, setStored schedules a check, which writes the
// condition again.
func (r *remote) setStored(stored *apiregistrationv1.APIServiceCondition) {
	r.storedCondition.Store(stored)
	if lastCheck := r.lastCheck.Load(); lastCheck != nil && (stored == nil || stored.Status != lastCheck.Status) {
		r.scheduleCheck()
	}
}

// checkAndReport checks whether the remote is available, reads its resources, and writes the
// condition Available. Then it schedules the next check: after checkInterval, or earlier if the
// remote is unavailable or its resources are unknown.
func (r *remote) checkAndReport(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.workCtx, cancel)() // a remote that was replaced must not occupy a slot
	condition := r.check(ctx)
	if ctx.Err() != nil || r.workCtx.Err() != nil {
		return
	}
	changed := r.recordCheck(condition)
	resourcesChanged := false
	described := make(chan struct{})
	go func() {
		defer close(described)
		resourcesChanged = r.describe(ctx)
	}()
	select {
	case <-described:
	case <-time.After(describeWait):
	}
	if stored := r.storedCondition.Load(); r.workCtx.Err() == nil && (stored == nil || !EqualConditions(stored, &condition)) {
		if stored != nil && stored.Status == condition.Status {
			condition.LastTransitionTime = stored.LastTransitionTime
		}
		if err := r.aggregator.Write(ctx, r.name, condition); err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
			r.aggregator.Logger.Warn("failed to update the condition of an APIService", "apiservice", r.name, "error", err)
		}
	}
	<-described
	if changed || resourcesChanged {
		for _, notify := range r.aggregator.onChange {
			notify()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := checkInterval
	if condition.Status == apiregistrationv1.ConditionTrue && !r.description.Load().stale {
		r.retryDelay = 0
	} else {
		r.retryDelay = min(max(2*r.retryDelay, firstRetryDelay), checkInterval)
		wait = r.retryDelay
	}
	r.nextCheckAt = r.aggregator.Now().Add(wait)
	if r.checkAgain {
		r.checkAgain = false
		r.nextCheckAt = r.lastCheckAt.Add(minCheckInterval)
	}
	r.checking = false
}

// unreachableTexts lists parts of error messages that classify why a server is unreachable. The
// first one is followed by a status code.
var unreachableTexts = []string{
	"bad status from ",
	"connection refused",
	"deadline exceeded",
	"no such host",
	"no route to host",
	"tls: ",
	"x509: ",
	"HTTP response to HTTPS client",
}

// EqualConditions reports whether two conditions have the same meaning. Messages about an
// unreachable server are equal if they are of the same class (unreachableTexts), because replicas
// and consecutive checks report the same failure with different ports and details. Messages with a
// status code must be identical.
func EqualConditions(a, b *apiregistrationv1.APIServiceCondition) bool {
	if a.Status != b.Status || a.Reason != b.Reason {
		return false
	}
	if a.Message == b.Message || a.Reason != failedDiscovery {
		return a.Message == b.Message
	}
	for i, text := range unreachableTexts {
		inA := strings.Contains(a.Message, text)
		inB := strings.Contains(b.Message, text)
		if inA || inB {
			const badStatus = 0 // index of the class whose messages must be identical
			return inA && inB && i != badStatus
		}
	}
	return true
}

// recordCheck records the result of a check and reports whether it changed.
func (r *remote) recordCheck(condition apiregistrationv1.APIServiceCondition) (changed bool) {
	previous := r.lastCheck.Swap(&condition)
	if previous != nil && previous.Status == condition.Status && previous.Reason == condition.Reason {
		return false
	}
	log := r.aggregator.Logger.Info
	if condition.Status != apiregistrationv1.ConditionTrue {
		log = r.aggregator.Logger.Warn
		r.aggregator.Metrics.countFailedCheck(r.name, condition.Reason)
	}
	log(
		"the server of an API was checked",
		"apiservice",
		r.name,
		"available",
		condition.Status,
		"reason",
		condition.Reason,
		"message",
		condition.Message,
	)
	return true
}

// newCondition returns a condition Available with the current time and a formatted message.
func (r *remote) newCondition(
	value apiregistrationv1.ConditionStatus,
	reason, format string,
	args ...any,
) apiregistrationv1.APIServiceCondition {
	return apiregistrationv1.APIServiceCondition{
		Type:               apiregistrationv1.Available,
		Status:             value,
		LastTransitionTime: metav1.NewTime(r.aggregator.Now()),
		Reason:             reason,
		Message:            status.Truncate(fmt.Sprintf(format, args...), maxConditionMessage),
	}
}

// check determines whether the server is available.
func (r *remote) check(ctx context.Context) apiregistrationv1.APIServiceCondition {
	unavailable := apiregistrationv1.ConditionFalse
	ref := r.spec.Service
	svc, err := r.aggregator.Service(ctx, ref.Namespace, ref.Name)
	switch {
	case apierrors.IsNotFound(err):
		return r.newCondition(unavailable, "ServiceNotFound", "service/%s in %q is not present", ref.Name, ref.Namespace)
	case err != nil:
		return r.newCondition(
			apiregistrationv1.ConditionUnknown,
			"ServiceAccessError",
			"service/%s in %q cannot be checked due to: %v",
			ref.Name,
			ref.Namespace,
			err,
		)
	}
	if svc.Spec.Type == corev1.ServiceTypeClusterIP || svc.Spec.Type == "" {
		if c, ok := r.checkEndpoints(ctx, svc); !ok {
			return c
		}
	}
	for range attempts {
		if err = r.ping(ctx); err == nil {
			return r.newCondition(apiregistrationv1.ConditionTrue, "Passed", "all checks passed")
		}
		if errors.Is(err, context.DeadlineExceeded) || ctx.Err() != nil {
			break // further attempts would take too long
		}
	}
	return r.newCondition(unavailable, failedDiscovery, "%v", err)
}

// checkEndpoints reports whether the service has an endpoint for the remote's port. If not, it
// returns the condition to write.
func (r *remote) checkEndpoints(ctx context.Context, svc *corev1.Service) (c apiregistrationv1.APIServiceCondition, ok bool) {
	unavailable := apiregistrationv1.ConditionFalse
	portName, listening := "", false
	for i := range svc.Spec.Ports {
		if svc.Spec.Ports[i].Port == r.port {
			portName = svc.Spec.Ports[i].Name
			listening = true
		}
	}
	if !listening {
		return r.newCondition(
			unavailable,
			"ServicePortError",
			"service/%s in %q is not listening on port %d",
			svc.Name,
			svc.Namespace,
			r.port,
		), false
	}
	endpoints, err := r.aggregator.Endpoints(ctx, svc.Namespace, svc.Name)
	switch {
	case apierrors.IsNotFound(err):
		return r.newCondition(
			unavailable,
			"EndpointsNotFound",
			"cannot find endpoints for service/%s in %q",
			svc.Name,
			svc.Namespace,
		), false
	case err != nil:
		return r.newCondition(
			apiregistrationv1.ConditionUnknown,
			"EndpointsAccessError",
			"service/%s in %q cannot be checked due to: %v",
			svc.Name,
			svc.Namespace,
			err,
		), false
	}
	for i := range endpoints.Subsets {
		for _, p := range endpoints.Subsets[i].Ports {
			if p.Name == portName && len(endpoints.Subsets[i].Addresses) > 0 {
				return c, true
			}
		}
	}
	return r.newCondition(
		unavailable,
		"MissingEndpoints",
		"endpoints for service/%s in %q have no addresses with port name %q",
		svc.Name,
		svc.Namespace,
		portName,
	), false
}

// ping requests the resource list of the group version. It returns an error unless the response has
// a status code from 200 to 299. It ignores the body.
func (r *remote) ping(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	target, err := r.locate(ctx, r.path())
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, target.String(), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept-Encoding", "gzip") // like all requests for resources
	transport.SetAuthProxyHeaders(req, checkUser, "", []string{api.GroupMasters}, nil)
	client := &http.Client{
		Transport:     r.unverified,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	resp, err := client.Do(req)
	if err == nil {
		resp.Body.Close()
		if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusMultipleChoices {
			err = fmt.Errorf("bad status from %v: %d", target, resp.StatusCode)
		}
	}
	if err != nil {
		return fmt.Errorf("failing or missing response from %v: %w", target, err)
	}
	return nil
}

// groupVersion returns the group version that the remote serves.
func (r *remote) groupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: r.spec.Group, Version: r.spec.Version}
}

// path returns the URL path of the group version.
func (r *remote) path() string {
	if r.spec.Group == "" {
		return "/api/" + r.spec.Version
	}
	return "/apis/" + r.spec.Group + "/" + r.spec.Version
}
