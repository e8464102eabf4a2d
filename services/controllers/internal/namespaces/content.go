package namespaces

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"binnacle/libs/kubeclient"
	"binnacle/services/controllers/internal/resources"
)

const (
	// finalizerEstimate is the estimated time in seconds until finalizers are removed.
	finalizerEstimate = 15
	// maxGracePeriod limits the grace period of pods, in seconds. Pods may have any, also one that
	// does not fit in a duration.
	maxGracePeriod = 3600
	// pageSize is how many objects are in memory at a time while listing.
	pageSize = 500
	// requestTimeout bounds one request.
	requestTimeout = 30 * time.Second
)

func podsResource() schema.GroupResource { return schema.GroupResource{Resource: "pods"} }

// deleteContent deletes the objects of a namespace and reports the progress in its conditions. It
// returns the estimated time in seconds until the remaining objects are gone.
func (c *Controller) deleteContent(ctx context.Context, namespace *corev1.Namespace) (estimate int64, err error) {
	// 1. Discover the resources of the namespace.
	state := &progress{remaining: map[schema.GroupVersionResource]int{}, finalizers: map[string]int{}}
	table, err := c.Resources.Get(ctx, tableAge)
	if err != nil {
		state.discoveryErr = err
		return 0, errors.Join(err, c.updateConditions(ctx, namespace, state))
	}
	state.discoveryErr = table.Failure
	var pods, others []*resources.Resource
	for _, resource := range table.Preferred {
		switch {
		case !resource.Namespaced || !resource.Can("delete"):
		case resource.GroupResource() == podsResource():
			pods = append(pods, resource)
		default:
			others = append(others, resource)
		}
	}

	// 2. Delete the pods first. They may need the other objects until they have ended.
	for _, resource := range pods {
		seconds, err := c.deleteAll(ctx, resource, namespace, state)
		estimate = max(estimate, seconds)
		if err != nil {
			state.failures = append(state.failures, fmt.Errorf("failed to delete pods for namespace: %s, err: %w", namespace.Name, err))
		}
	}

	// 3. Delete the other objects once no pod remains. One failed resource does not stop the others.
	if len(state.remaining) == 0 {
		for _, resource := range others {
			seconds, err := c.deleteAll(ctx, resource, namespace, state)
			estimate = max(estimate, seconds)
			if err != nil {
				state.failures = append(state.failures, err)
			}
		}
	}
	return estimate, errors.Join(state.discoveryErr, errors.Join(state.failures...), c.updateConditions(ctx, namespace, state))
}

// updateConditions writes the conditions if they have changed.
func (c *Controller) updateConditions(ctx context.Context, namespace *corev1.Namespace, p *progress) error {
	_, err := c.updateWithRetry(ctx, namespace, func(namespace *corev1.Namespace) (*corev1.Namespace, error) {
		if !p.setConditions(&namespace.Status, metav1.Now()) {
			return namespace, nil
		}
		return c.Client.UpdateSubresource(ctx, namespace, "status", metav1.UpdateOptions{})
	})
	return err
}

// deleteAll deletes the objects of a resource. It returns the estimated time in seconds until the
// remaining ones are gone. Without an estimate, remaining objects are an error.
func (c *Controller) deleteAll(ctx context.Context, resource *resources.Resource, namespace *corev1.Namespace,
	state *progress) (estimate int64, err error) {
	// 1. Return if there are no objects.
	if resource.Can("list") {
		before, _, err := c.countObjects(ctx, resource, namespace.Name, nil)
		if err != nil || before == 0 {
			return 0, err
		}
	}

	// 2. Delete them. Pods end only after their grace period.
	if resource.GroupResource() == podsResource() {
		if estimate, err = c.podGracePeriod(ctx, namespace); err != nil {
			return 0, err
		}
	}
	if err := c.deleteCollection(ctx, resource, namespace.Name); err != nil {
		return estimate, err
	}

	// 3. Count those that remain, and why.
	if !resource.Can("list") {
		return estimate, nil
	}
	n, finalizers, err := c.countObjects(ctx, resource, namespace.Name, nil)
	if err != nil || n == 0 {
		return estimate, err
	}
	state.remaining[resource.GroupVersionResource] = n
	for f, n := range finalizers {
		state.finalizers[f] += n
	}
	switch {
	case estimate != 0:
		return estimate, nil
	case len(finalizers) > 0:
		return finalizerEstimate, nil
	}
	return 0, fmt.Errorf("unexpected items still remain in namespace: %s for gvr: %v", namespace.Name, resource.GroupVersionResource)
}

// countObjects returns the number of objects of a resource, in total and by finalizer. It calls
// visit, which may be nil, for every object.
func (c *Controller) countObjects(ctx context.Context, resource *resources.Resource, namespace string,
	visit func(*metav1.PartialObjectMetadata) error) (n int, finalizers map[string]int, err error) {
	finalizers = map[string]int{}
	err = kubeclient.EachPage(ctx, pageSize,
		func(ctx context.Context, o metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
			page, err := c.listPage(ctx, resource, namespace, o)
			if isUnsupported(err) {
				return &metav1.PartialObjectMetadataList{}, nil
			}
			return page, err
		}, func(page *metav1.PartialObjectMetadataList) error {
			n += len(page.Items)
			for i := range page.Items {
				for _, f := range page.Items[i].Finalizers {
					finalizers[f]++
				}
				if visit != nil {
					if err := visit(&page.Items[i]); err != nil {
						return err
					}
				}
			}
			return nil
		})
	if err != nil {
		return 0, nil, err
	}
	return n, finalizers, nil
}

func (c *Controller) listPage(ctx context.Context, resource *resources.Resource, namespace string,
	options metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.Metadata.Resource(resource.GroupVersionResource).Namespace(namespace).List(ctx, options)
}

// deleteCollection deletes the objects of a resource, one by one if the resource does not support
// the deletion of a collection.
func (c *Controller) deleteCollection(ctx context.Context, resource *resources.Resource, namespace string) error {
	policy := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{PropagationPolicy: &policy}
	objects := c.Metadata.Resource(resource.GroupVersionResource).Namespace(namespace)
	if resource.Can("deletecollection") {
		// The server deletes many objects in this request, so it has no timeout. The response
		// contains the deleted objects. If it is too large, they are deleted nevertheless.
		err := objects.DeleteCollection(ctx, options, metav1.ListOptions{})
		if errors.Is(err, kubeclient.ErrResponseTooLarge) {
			return nil
		}
		if !isUnsupported(err) {
			return err
		}
	}
	if !resource.Can("list") {
		return nil
	}
	_, _, err := c.countObjects(ctx, resource, namespace, func(m *metav1.PartialObjectMetadata) error {
		if err := objects.Delete(ctx, m.Name, options); !isUnsupported(err) {
			return err
		}
		return nil
	})
	return err
}

// isUnsupported reports whether the server has no such operation or resource. Discovery may list
// operations that the server does not have.
func isUnsupported(err error) bool {
	return apierrors.IsMethodNotSupported(err) || apierrors.IsNotFound(err)
}

// podGracePeriod returns the longest grace period of the pods of a namespace that have not ended,
// in seconds and at most maxGracePeriod. It returns 0 if the namespace has been terminating for
// longer.
func (c *Controller) podGracePeriod(ctx context.Context, namespace *corev1.Namespace) (seconds int64, err error) {
	err = kubeclient.EachPage(ctx, pageSize, c.Pods(namespace.Name).List, func(page *corev1.PodList) error {
		for i := range page.Items {
			pod := &page.Items[i]
			ended := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
			if grace := pod.Spec.TerminationGracePeriodSeconds; !ended && grace != nil {
				seconds = max(seconds, min(*grace, maxGracePeriod))
			}
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	if time.Since(namespace.DeletionTimestamp.Time) >= time.Duration(seconds)*time.Second {
		return 0, nil
	}
	return seconds, nil
}
