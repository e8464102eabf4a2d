package podsecurity

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"k8s.io/pod-security-admission/api"
	"k8s.io/pod-security-admission/policy"

	"binnacle/services/apiserver/internal/request"
)

const (
	// maxPods is the maximum number of existing pods that one change of a namespace evaluates.
	maxPods = 3000
	// podsTimeout bounds the evaluation of existing pods. If the request has less than twice that
	// time left, the bound is half of the time left.
	podsTimeout = time.Second
)

// Objects looks up namespaces and their pods.
type Objects interface {
	GetNamespace(ctx context.Context, name string) (*corev1.Namespace, error)
	// PodsIn returns the pods of a namespace, the oldest first.
	PodsIn(ctx context.Context, namespace string) ([]Stored, error)
}

// Stored is a stored pod that is decoded when one of its methods needs it.
type Stored interface {
	// Size returns the stored size in bytes.
	Size() int
	// PodForSelection returns the fields by which pods are selected: name, owners and runtime class.
	PodForSelection() (*corev1.Pod, error)
	// PodForEvaluation returns the fields that the standards evaluate: name, labels, annotations
	// and spec.
	PodForEvaluation() (*corev1.Pod, error)
}

// listingFailed is the warning if the pods cannot be listed.
const listingFailed = "failed to list pods while checking new PodSecurity enforce level"

// checkExisting evaluates the existing pods of a namespace by a standard that the namespace is
// about to enforce, and returns warnings for the client. It evaluates as many pods as maxPods and
// podsTimeout permit. Each pod is decoded when it is evaluated, and not retained. An error means
// that the request is throttled.
func (s *standards) checkExisting(ctx context.Context, namespace string, enforce api.LevelVersion) ([]string, error) {
	pods, err := s.objects.PodsIn(ctx, namespace)
	if err != nil {
		klog.FromContext(ctx).Error(err, "failed to list pods", "namespace", namespace)
		return []string{listingFailed}, nil
	}
	size := 0
	for _, p := range pods {
		size += p.Size()
	}
	// The limiter for large requests is acquired before the time limit starts.
	if err := request.Estimate(ctx, size); err != nil {
		return nil, err
	}
	timeout := podsTimeout
	if deadline, ok := ctx.Deadline(); ok {
		timeout = min(timeout, time.Until(deadline)/2)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	ordered, err := s.orderForEvaluation(ctx, pods)
	if err != nil {
		klog.FromContext(ctx).Error(err, "failed to list pods", "namespace", namespace)
		return []string{listingFailed}, nil
	}
	found, checked := violations{}, 0
	for _, p := range ordered[:min(len(ordered), maxPods)] {
		found.addPod(s.checks, enforce, p)
		checked++
		if ctx.Err() != nil {
			break
		}
	}
	var warnings []string
	if checked < len(ordered) {
		warnings = append(warnings,
			fmt.Sprintf("new PodSecurity enforce level only checked against the first %d of %d existing pods", checked, len(ordered)))
	}
	if len(found) > 0 {
		warnings = append(warnings,
			fmt.Sprintf("existing pods in namespace %q violate the new PodSecurity enforce level %q", namespace, enforce.String()))
	}
	return append(warnings, found.warnings()...), nil
}

// namedPod is a stored pod and its name.
type namedPod struct {
	Stored
	name string
}

// orderForEvaluation returns the pods that are not exempt, the most informative first: pods without
// a controller and one pod of each controller come before all others, because the pods of a
// controller have equal specs.
func (s *standards) orderForEvaluation(ctx context.Context, pods []Stored) ([]namedPod, error) {
	first, others := make([]namedPod, 0, len(pods)), []namedPod(nil)
	seen := map[types.UID]bool{}
	for _, stored := range pods {
		if err := ctx.Err(); err != nil { // the request has ended
			return nil, err
		}
		pod, err := stored.PodForSelection()
		if err != nil {
			return nil, err
		}
		if s.isExemptRuntimeClass(pod.Spec.RuntimeClassName) {
			continue
		}
		owner := metav1.GetControllerOfNoCopy(pod)
		if owner != nil && seen[owner.UID] {
			others = append(others, namedPod{Stored: stored, name: pod.Name})
			continue
		}
		if owner != nil {
			seen[owner.UID] = true
		}
		first = append(first, namedPod{Stored: stored, name: pod.Name})
	}
	return append(first, others...), nil
}

// violations maps the reason for a violation to the pods that violate the standard for it.
type violations map[string]struct {
	name  string // of the first pod in alphabetical order
	count int    // of the pods
}

// addPod evaluates a pod and records it if it violates the standard.
func (v violations) addPod(checks policy.Evaluator, enforce api.LevelVersion, p namedPod) {
	reason := "it cannot be read"
	if pod, err := p.PodForEvaluation(); err == nil {
		result := policy.AggregateCheckResults(checks.EvaluatePod(enforce, &pod.ObjectMeta, &pod.Spec))
		if result.Allowed {
			return
		}
		reason = result.ForbiddenReason()
	}
	seen := v[reason]
	if seen.count == 0 || p.name < seen.name {
		seen.name = p.name
	}
	seen.count++
	v[reason] = seen
}

// warnings returns a warning for each reason, sorted: "web (and 2 other pods): host namespaces".
func (v violations) warnings() []string {
	out := make([]string, 0, len(v))
	for reason, pods := range v {
		var others string
		switch pods.count {
		case 1:
		case 2:
			others = " (and 1 other pod)"
		default:
			others = fmt.Sprintf(" (and %d other pods)", pods.count-1)
		}
		out = append(out, pods.name+others+": "+reason)
	}
	slices.SortFunc(out, strings.Compare)
	return out
}
