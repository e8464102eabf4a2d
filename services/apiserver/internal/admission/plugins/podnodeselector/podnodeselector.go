// Package podnodeselector keeps the pods of a namespace on certain nodes. Each new pod gets the
// node selector in the namespace's annotation, or the configured default if there is no annotation.
// The pod's own selector must not contradict it. The configuration may also list, for a namespace,
// the only labels that its pods may select by.
package podnodeselector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/configuration"
	"binnacle/services/apiserver/internal/status"
)

// Name is the name of the plugin in flags and configuration.
const Name = "PodNodeSelector"

const (
	// annotation is the namespace annotation that holds its selector.
	annotation = "scheduler.alpha.kubernetes.io/node-selector"
	// clusterDefault is the configuration key of the default selector.
	clusterDefault = "clusterDefaultNodeSelector"
)

// Namespaces looks up namespaces.
type Namespaces interface {
	GetNamespace(ctx context.Context, name string) (*corev1.Namespace, error)
}

// Plugin implements admission.Mutator and admission.Validator.
type Plugin struct {
	namespaces Namespaces
	// selectors holds the default selector (key clusterDefault), and the labels that the pods of a
	// namespace may select by (key: namespace).
	selectors map[string]labels.Set
}

var (
	errConflict = errors.New("pod node label selector conflicts with its namespace node label selector")
	errNotInSet = errors.New("pod node label selector labels conflict with its namespace whitelist")
)

// New decodes the configuration, which may be nil.
func New(data []byte, namespaces Namespaces) (*Plugin, error) {
	var config struct {
		Selectors map[string]string `json:"podNodeSelectorPluginConfig"`
	}
	if data != nil {
		if err := configuration.DecodeBare(data, &config); err != nil {
			return nil, err
		}
	}
	plugin := &Plugin{namespaces: namespaces, selectors: map[string]labels.Set{}}
	for _, name := range slices.Sorted(maps.Keys(config.Selectors)) {
		set, err := labels.ConvertSelectorToLabelsMap(config.Selectors[name])
		if err != nil {
			return nil, fmt.Errorf("podNodeSelectorPluginConfig[%s]: %w", name, err)
		}
		plugin.selectors[name] = set
	}
	return plugin, nil
}

// Admit adds the selector of the namespace to a new pod.
func (p *Plugin) Admit(ctx context.Context, req *admission.Request) error {
	pod, selector, err := p.podAndSelector(ctx, req)
	if pod == nil || err != nil {
		return err
	}
	if len(selector) > 0 {
		if pod.Spec.NodeSelector == nil {
			pod.Spec.NodeSelector = map[string]string{}
		}
		maps.Copy(pod.Spec.NodeSelector, selector) // equal keys have equal values
	}
	return p.checkAllowed(req, pod)
}

// Validate implements admission.Validator.
func (p *Plugin) Validate(ctx context.Context, req *admission.Request) error {
	pod, _, err := p.podAndSelector(ctx, req)
	if pod == nil || err != nil {
		return err
	}
	return p.checkAllowed(req, pod)
}

// podAndSelector returns the pod of a creation and the selector of its namespace. It returns an
// error if they conflict, and a nil pod for any other request.
func (p *Plugin) podAndSelector(ctx context.Context, req *admission.Request) (*corev1.Pod, labels.Set, error) {
	pod, ok := req.Object.(*corev1.Pod)
	if !ok || req.Operation != admission.Create || !req.IsObject("", "pods") {
		return nil, nil, nil
	}
	namespace, err := p.namespaces.GetNamespace(ctx, req.Namespace)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, apierrors.NewInternalError(fmt.Errorf("namespace %s does not exist", req.Namespace))
	case err != nil:
		return nil, nil, apierrors.NewInternalError(err)
	}
	selector := p.selectors[clusterDefault]
	if text, ok := namespace.Annotations[annotation]; ok {
		if selector, err = labels.ConvertSelectorToLabelsMap(text); err != nil {
			return nil, nil, status.Error(http.StatusInternalServerError, metav1.StatusReasonUnknown, err.Error(), nil)
		}
	}
	if labels.Conflicts(selector, pod.Spec.NodeSelector) {
		return nil, nil, forbidden(req, pod, errConflict)
	}
	return pod, selector, nil
}

// checkAllowed rejects a selector with labels that the configuration does not allow in the namespace.
func (p *Plugin) checkAllowed(req *admission.Request, pod *corev1.Pod) error {
	allowedLabels := p.selectors[req.Namespace]
	if len(allowedLabels) == 0 {
		return nil
	}
	for key, value := range pod.Spec.NodeSelector {
		if allowed, ok := allowedLabels[key]; !ok || allowed != value {
			return forbidden(req, pod, errNotInSet)
		}
	}
	return nil
}

// forbidden returns a Forbidden error for a pod with the reason err.
func forbidden(req *admission.Request, pod *corev1.Pod, err error) error {
	return apierrors.NewForbidden(req.Resource.GroupResource(), pod.Name, err)
}
