package quotas

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"binnacle/libs/kubeclient"
	"binnacle/libs/quota"
)

const (
	// pageSize is how many objects are in memory at a time while adding their usage.
	pageSize = 500
	// requestTimeout bounds one request.
	requestTimeout = 30 * time.Second
	// tableAge is the maximum age of the table that says which version of device claims is served.
	tableAge = time.Minute

	// countPrefix begins the names that limit the number of objects of a resource.
	countPrefix = "count/"
)

func podsResource() schema.GroupResource   { return schema.GroupResource{Resource: "pods"} }
func quotasResource() schema.GroupResource { return schema.GroupResource{Resource: "resourcequotas"} }

// evaluatorFor returns the evaluator of a resource.
func (c *Controller) evaluatorFor(resource schema.GroupResource) *quota.Evaluator {
	if e := c.evaluators[resource]; e != nil {
		return e
	}
	return quota.CountOf(resource, "")
}

// computesUsage reports whether this controller computes the usage of a name.
func (c *Controller) computesUsage(name corev1.ResourceName) bool {
	if strings.HasPrefix(string(name), countPrefix) {
		return true
	}
	for _, e := range c.evaluators {
		if e.MatchesResource(name) {
			return true
		}
	}
	return false
}

// limitedResources returns the resources that a quota limits.
func (c *Controller) limitedResources(q *corev1.ResourceQuota) map[schema.GroupResource]*quota.Evaluator {
	out := map[schema.GroupResource]*quota.Evaluator{}
	for r, e := range c.evaluators {
		if len(quota.SelectNames(q.Spec.Hard, e.MatchesResource)) > 0 {
			out[r] = e
		}
	}
	for name := range q.Spec.Hard {
		if r, ok := strings.CutPrefix(string(name), countPrefix); ok {
			gr := schema.ParseGroupResource(r)
			out[gr] = c.evaluatorFor(gr)
		}
	}
	return out
}

// totalUsage returns the usage of the names of a quota, without those whose usage cannot be
// computed, and the reasons. The usage is not complete if a resource is not served.
func (c *Controller) totalUsage(ctx context.Context, resourceQuota *corev1.ResourceQuota) (total quota.Amounts, complete bool, errs []error) {
	failed := quota.Amounts{}
	total, complete = quota.Amounts{}, true
	for groupResource, e := range c.limitedResources(resourceQuota) {
		zero := quota.Amounts{} // the names of this resource, each with the amount 0
		for _, name := range quota.SelectNames(resourceQuota.Spec.Hard, e.MatchesResource) {
			zero[name] = resource.Quantity{Format: resource.DecimalSI}
		}
		used, served, err := c.addUsage(ctx, resourceQuota, groupResource, e, zero)
		if !served {
			complete = false
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("usage of %s: %w", groupResource, err))
			failed = quota.Plus(failed, zero)
			continue
		}
		total = quota.Plus(total, quota.FilterNames(used, resourceQuota.Spec.Hard))
	}
	// Several resources can add to one name. Without one of them the sum is too low.
	for name := range failed {
		delete(total, name)
	}
	return total, complete, errs
}

// addUsage adds the usage of the objects of a resource to used. It returns false if the resource is
// not served.
func (c *Controller) addUsage(ctx context.Context, resourceQuota *corev1.ResourceQuota, groupResource schema.GroupResource,
	evaluator *quota.Evaluator, used quota.Amounts) (quota.Amounts, bool, error) {
	scopes := quota.Scopes(resourceQuota)
	if evaluator.Uniform {
		n, served, err := c.countObjects(groupResource, resourceQuota.Namespace)
		if !served || err != nil || len(scopes) > 0 { // the objects are in no scope
			return used, served, err
		}
		perObject, err := evaluator.Usage(nil)
		for name := range perObject {
			used[name] = *resource.NewQuantity(int64(n), resource.DecimalSI)
		}
		return used, true, err
	}
	err := c.eachObject(ctx, groupResource, resourceQuota.Namespace, func(obj runtime.Object) error {
		matched, err := evaluator.ScopesOf(obj, scopes)
		if err != nil || len(matched) < len(scopes) {
			return err
		}
		amounts, err := evaluator.Usage(obj)
		if err != nil {
			return err
		}
		used = quota.Plus(used, quota.FilterNames(amounts, resourceQuota.Spec.Hard))
		return nil
	})
	return used, true, err
}

// countObjects returns the number of objects of a resource in a namespace. It counts quotas in the
// informer, because Counts may not contain the quota that is being computed yet.
func (c *Controller) countObjects(r schema.GroupResource, namespace string) (n int, served bool, err error) {
	if r != quotasResource() {
		return c.Counts.Count(r, namespace)
	}
	names, err := c.quotas.GetIndexer().IndexKeys(cache.NamespaceIndex, namespace)
	return len(names), true, err
}

// eachObject calls visit for the objects of a resource in a namespace.
func (c *Controller) eachObject(ctx context.Context, r schema.GroupResource, namespace string,
	visit func(runtime.Object) error) error {
	list, err := c.newLister(ctx, r, namespace)
	if err != nil {
		return err
	}
	return kubeclient.EachPage(ctx, pageSize, func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return c.listWithTimeout(ctx, list, o)
	}, func(page runtime.Object) error { return meta.EachListItem(page, visit) })
}

// listFunc returns a page of objects.
type listFunc func(context.Context, metav1.ListOptions) (runtime.Object, error)

func (c *Controller) listWithTimeout(ctx context.Context, list listFunc, options metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return list(ctx, options)
}

// listOf adapts a typed list function.
func listOf[T runtime.Object](list func(context.Context, metav1.ListOptions) (T, error)) listFunc {
	return func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) { return list(ctx, o) }
}

// newLister returns the lister of a resource in a namespace.
func (c *Controller) newLister(ctx context.Context, r schema.GroupResource, namespace string) (listFunc, error) {
	switch r {
	case podsResource():
		return listOf(c.Clients.Pods(namespace).List), nil
	case schema.GroupResource{Resource: "services"}:
		return listOf(c.Clients.Services(namespace).List), nil
	case schema.GroupResource{Resource: "persistentvolumeclaims"}:
		return listOf(c.Clients.VolumeClaims(namespace).List), nil
	}
	return c.newDeviceClaimLister(ctx, namespace)
}

// newDeviceClaimLister lists device claims in the version that the server prefers.
func (c *Controller) newDeviceClaimLister(ctx context.Context, namespace string) (listFunc, error) {
	table, err := c.Resources.Get(ctx, tableAge)
	if err != nil {
		return nil, err
	}
	for _, resource := range table.Preferred {
		if resource.Group != "resource.k8s.io" || resource.Resource != "resourceclaims" {
			continue
		}
		switch resource.Version {
		case "v1beta1":
			return listOf(c.Clients.DeviceClaimsV1beta1(namespace).List), nil
		case "v1beta2":
			return listOf(c.Clients.DeviceClaimsV1beta2(namespace).List), nil
		}
	}
	return nil, fmt.Errorf("resourceclaims.resource.k8s.io are not served in a known version")
}
