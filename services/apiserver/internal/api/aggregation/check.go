package aggregation

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/transport"

	"binnacle/libs/api"
	apiregistrationv1 "binnacle/services/apiserver/internal/registry/apis/apiregistration/v1"
)

const (
	// requestTimeout bounds one request to an extension server.
	requestTimeout = 5 * time.Second
	// minCheckInterval is the minimum interval between checks of a server.
	minCheckInterval = time.Second
	// describeWait is the maximum time that a check waits for the resource list of the server before
	// it writes the condition, so that a client that waits for Available usually finds the resources
	// in discovery.
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
// check is running, and the caller calls checkAndReport. scheduleNextCheck records the end of the
// check.
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
// check of old, so that frequent changes of an APIService do not cause frequent checks.
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

// setStored remembers stored, the condition Available that the APIService has in storage. nil means
// that it has none. If the status differs from the result of the last check, setStored schedules a
// check, which writes the condition again.
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

	// 1. Check the server.
	condition := r.check(ctx)
	if ctx.Err() != nil || r.workCtx.Err() != nil {
		// The server stops, or the remote was replaced. Neither is followed by another check of this
		// remote, so checking stays set.
		return
	}
	changed := r.recordCheck(condition)

	// 2. Read its resources. Step 3 waits for them for at most describeWait.
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

	// 3. Write the condition.
	if r.workCtx.Err() == nil {
		r.writeCondition(ctx, condition)
	}

	// 4. Notify the subscribers when all results are known.
	<-described
	if changed || resourcesChanged {
		for _, notify := range r.aggregator.onChange {
			notify()
		}
	}
	r.scheduleNextCheck(condition.Status == apiregistrationv1.ConditionTrue && !r.description.Load().stale)
}

// writeCondition writes a condition unless the stored one has the same meaning. It logs an error.
func (r *remote) writeCondition(ctx context.Context, condition apiregistrationv1.APIServiceCondition) {
	stored := r.storedCondition.Load()
	if stored != nil && EqualConditions(stored, &condition) {
		return
	}
	if stored != nil && stored.Status == condition.Status {
		condition.LastTransitionTime = stored.LastTransitionTime
	}
	err := r.aggregator.Write(ctx, r.name, condition)
	if err != nil && ctx.Err() == nil && !apierrors.IsNotFound(err) {
		r.aggregator.Logger.Warn("failed to update the condition of an APIService", "apiservice", r.name, "error", err)
	}
}

// scheduleNextCheck records that the running check has ended and determines the time of the next
// one. succeeded reports that the server is available and its resources are known.
func (r *remote) scheduleNextCheck(succeeded bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wait := checkInterval
	if succeeded {
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
	log("the server of an API was checked", "apiservice", r.name,
		"available", condition.Status, "reason", condition.Reason, "message", condition.Message)
	return true
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
		return r.newCondition(apiregistrationv1.ConditionUnknown, "ServiceAccessError",
			"service/%s in %q cannot be checked due to: %v", ref.Name, ref.Namespace, err)
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
func (r *remote) checkEndpoints(ctx context.Context, svc *corev1.Service) (condition apiregistrationv1.APIServiceCondition, ok bool) {
	unavailable := apiregistrationv1.ConditionFalse
	portName, listening := "", false
	for i := range svc.Spec.Ports {
		if svc.Spec.Ports[i].Port == r.port {
			portName = svc.Spec.Ports[i].Name
			listening = true
		}
	}
	if !listening {
		return r.newCondition(unavailable, "ServicePortError",
			"service/%s in %q is not listening on port %d", svc.Name, svc.Namespace, r.port), false
	}
	endpoints, err := r.aggregator.Endpoints(ctx, svc.Namespace, svc.Name)
	switch {
	case apierrors.IsNotFound(err):
		return r.newCondition(unavailable, "EndpointsNotFound",
			"cannot find endpoints for service/%s in %q", svc.Name, svc.Namespace), false
	case err != nil:
		return r.newCondition(apiregistrationv1.ConditionUnknown, "EndpointsAccessError",
			"service/%s in %q cannot be checked due to: %v", svc.Name, svc.Namespace, err), false
	}
	for i := range endpoints.Subsets {
		subset := &endpoints.Subsets[i]
		for _, port := range subset.Ports {
			if port.Name == portName && len(subset.Addresses) > 0 {
				return condition, true
			}
		}
	}
	return r.newCondition(unavailable, "MissingEndpoints",
		"endpoints for service/%s in %q have no addresses with port name %q", svc.Name, svc.Namespace, portName), false
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
		if isSuccess := resp.StatusCode >= http.StatusOK && resp.StatusCode < http.StatusMultipleChoices; !isSuccess {
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
