// Package podtolerationrestriction adds default tolerations to pods, and rejects tolerations that
// are not in a whitelist. Annotations of the namespace contain the defaults and the whitelist. The
// configuration applies to namespaces without these annotations.
package podtolerationrestriction

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/libs/podqos"
	"binnacle/services/apiserver/internal/admission"
	"binnacle/services/apiserver/internal/admission/configuration"
	"binnacle/services/apiserver/internal/admission/plugins/tolerations"
	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/registry/validate"
	"binnacle/services/apiserver/internal/status"
)

// Name is the name of the plugin in flags and configuration.
const Name = "PodTolerationRestriction"

// Annotations of a namespace. Their values are lists of tolerations in JSON.
const (
	defaultsAnnotation  = "scheduler.alpha.kubernetes.io/defaultTolerations"
	whitelistAnnotation = "scheduler.alpha.kubernetes.io/tolerationsWhitelist"
)

// Namespaces looks up namespaces.
type Namespaces interface {
	GetNamespace(ctx context.Context, name string) (*corev1.Namespace, error)
}

// Configuration applies to namespaces without annotations.
type Configuration struct {
	APIVersion string              `json:"apiVersion"`
	Kind       string              `json:"kind"`
	Default    []corev1.Toleration `json:"default"`
	Whitelist  []corev1.Toleration `json:"whitelist"`
}

// Plugin implements admission.Mutator and admission.Validator.
type Plugin struct {
	namespaces Namespaces
	config     Configuration
}

// New decodes the configuration, which may be nil.
func New(data []byte, namespaces Namespaces) (*Plugin, error) {
	plugin := &Plugin{namespaces: namespaces}
	if data == nil {
		return plugin, nil
	}
	kind := schema.GroupVersionKind{Group: "podtolerationrestriction.admission.k8s.io", Version: "v1alpha1", Kind: "Configuration"}
	if err := configuration.Decode(data, &plugin.config, kind); err != nil {
		return nil, err
	}
	if errs := validate.CheckAt(field.NewPath("podtolerationrestriction"), func(fld validate.Field) {
		validate.Each(fld, "default", plugin.config.Default, podspec.TolerationRules)
		validate.Each(fld, "whitelist", plugin.config.Whitelist, podspec.TolerationRules)
	}); len(errs) > 0 {
		return nil, fmt.Errorf("invalid config: %v", errs)
	}
	return plugin, nil
}

// Admit adds the default tolerations to a new pod. To every pod that is not best-effort, it also
// adds a toleration of memory pressure.
func (p *Plugin) Admit(ctx context.Context, req *admission.Request) error {
	pod, namespace, err := p.podAndNamespace(ctx, req)
	if pod == nil || err != nil {
		return err
	}
	var added []corev1.Toleration
	if req.Operation == admission.Create {
		defaults, ok, err := fromAnnotation(namespace, defaultsAnnotation)
		if err != nil {
			return err
		}
		added = defaults
		if !ok {
			added = slices.Clone(p.config.Default)
		}
	}
	if podqos.Class(&pod.Spec) != corev1.PodQOSBestEffort {
		added = tolerations.Merge(added, []corev1.Toleration{{
			Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule,
		}})
	}
	if len(added) > 0 {
		pod.Spec.Tolerations = tolerations.Merge(pod.Spec.Tolerations, added)
	}
	return p.checkAllowed(pod, namespace)
}

// Validate implements admission.Validator.
func (p *Plugin) Validate(ctx context.Context, r *admission.Request) error {
	pod, namespace, err := p.podAndNamespace(ctx, r)
	if pod == nil || err != nil {
		return err
	}
	return p.checkAllowed(pod, namespace)
}

// podAndNamespace returns the pod of a creation or update and its namespace. It returns a nil pod
// for any other request.
func (p *Plugin) podAndNamespace(ctx context.Context, req *admission.Request) (*corev1.Pod, *corev1.Namespace, error) {
	pod, ok := req.Object.(*corev1.Pod)
	if !ok || !req.IsObject("", "pods") || req.Operation != admission.Create && req.Operation != admission.Update {
		return nil, nil, nil
	}
	namespace, err := p.namespaces.GetNamespace(ctx, req.Namespace)
	switch {
	case apierrors.IsNotFound(err):
		return nil, nil, err
	case err != nil:
		return nil, nil, apierrors.NewInternalError(err)
	}
	return pod, namespace, nil
}

// checkAllowed rejects a toleration that no element of the whitelist covers. An empty whitelist
// permits all tolerations.
func (p *Plugin) checkAllowed(pod *corev1.Pod, namespace *corev1.Namespace) error {
	if len(pod.Spec.Tolerations) == 0 {
		return nil
	}
	scope := "namespace"
	whitelist, ok, err := fromAnnotation(namespace, whitelistAnnotation)
	if err != nil {
		return err
	}
	if !ok {
		whitelist, scope = p.config.Whitelist, "cluster"
	}
	if len(whitelist) == 0 {
		return nil
	}
	for i := range pod.Spec.Tolerations {
		toleration := &pod.Spec.Tolerations[i]
		isCovered := func(listed corev1.Toleration) bool { return tolerations.Covers(&listed, toleration) }
		if !slices.ContainsFunc(whitelist, isCovered) {
			return internalError(
				"pod tolerations (possibly merged with namespace default tolerations) conflict with its " + scope + " whitelist",
			)
		}
	}
	return nil
}

// fromAnnotation decodes the annotation of a namespace under key. ok reports whether the namespace
// has the annotation.
func fromAnnotation(ns *corev1.Namespace, key string) (list []corev1.Toleration, ok bool, err error) {
	text, ok := ns.Annotations[key]
	if !ok || text == "" {
		return nil, ok, nil
	}
	if err := json.Unmarshal([]byte(text), &list); err != nil {
		return nil, true, internalError(err.Error())
	}
	return list, true, nil
}

// internalError returns an error with code 500 and without a reason, like Kubernetes.
func internalError(message string) error {
	return status.Error(http.StatusInternalServerError, metav1.StatusReasonUnknown, message, nil)
}
