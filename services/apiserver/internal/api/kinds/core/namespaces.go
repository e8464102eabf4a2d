package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/columns"
	"binnacle/services/apiserver/internal/registry/declare"
	"binnacle/services/apiserver/internal/registry/meta"
)

// namespaces declares the cluster-scoped kind Namespace.
func namespaces() *registry.Kind {
	return declare.Kind[corev1.Namespace, corev1.NamespaceList](&registry.Kind{
		Names: registry.Names{
			Version: version, Resource: "namespaces", Kind: "Namespace", ShortNames: []string{"ns"},
			ValidateName: meta.DNSLabel,
		},
		Verbs:   []string{"create", "delete", "get", "list", "patch", "update", "watch"},
		Parts:   declare.SpecStatusAccessors(func(n *corev1.Namespace) (*corev1.NamespaceSpec, *corev1.NamespaceStatus) { return &n.Spec, &n.Status }),
		Default: declare.Adapt(defaultNamespace),
		Create: registry.Create{
			Prepare:  declare.Adapt(prepareNamespaceCreate),
			Validate: declare.AdaptResult(validateNamespace),
		},
		Update: registry.Update{
			Order: registry.Order{registry.MetaRules, registry.MetaUpdateRules, registry.UpdateRules},
			Prepare: declare.AdaptUpdate(func(n, old *corev1.Namespace) {
				n.Spec.Finalizers = old.Spec.Finalizers
				n.Status = old.Status
			}),
			Validate: declare.AdaptUpdateResult(func(n, _ *corev1.Namespace) field.ErrorList { return validateNamespace(n) }),
		},
		Delete: registry.Delete{
			TwoPhase:       true,
			ReturnObject:   true,
			RemovalBlocked: declare.AdaptResult(func(n *corev1.Namespace) bool { return len(n.Spec.Finalizers) > 0 }),
			BeginDeletion: declare.Adapt(func(n *corev1.Namespace) {
				n.Status.Phase = corev1.NamespaceTerminating
			}),
		},
		Presentation: registry.Presentation{
			Selectable: []registry.SelectableField{{Label: "status.phase"}},
			Columns: []registry.Column{
				columns.Name(),
				columns.Text("Status", "The status of the namespace", func(n *corev1.Namespace) string { return string(n.Status.Phase) }),
				columns.Age(),
			},
		},
		Subresources: []registry.Subresource{
			{
				Name:        "finalize",
				GVK:         coreKind("Namespace"),
				Verbs:       []string{"update"},
				NoTable:     true,
				ResetFields: []string{"status"},
				Prepare:     declare.AdaptUpdate(func(n, old *corev1.Namespace) { n.Status = old.Status }),
				ValidateUpdate: declare.AdaptUpdateResult(func(n, _ *corev1.Namespace) field.ErrorList {
					return validateNamespaceFinalizers(n, (*field.Path).Index)
				}),
			},
			{
				Name:    "status",
				GVK:     coreKind("Namespace"),
				Verbs:   declare.ViewVerbs(),
				Prepare: declare.AdaptUpdate(func(n, old *corev1.Namespace) { n.Spec = old.Spec }),
				ValidateUpdate: declare.AdaptUpdateResult(
					func(n, _ *corev1.Namespace) field.ErrorList { return validateNamespacePhase(n) },
				),
			},
		},
	})
}

// defaultNamespace sets the label that selects a namespace by its name, and the phase.
func defaultNamespace(namespace *corev1.Namespace) {
	if namespace.Name != "" {
		labelNamespace(namespace)
	}
	if namespace.Status.Phase == "" {
		namespace.Status.Phase = corev1.NamespaceActive
	}
}

func labelNamespace(namespace *corev1.Namespace) {
	if namespace.Labels == nil {
		namespace.Labels = map[string]string{}
	}
	namespace.Labels[corev1.LabelMetadataName] = namespace.Name
}

// prepareNamespaceCreate also sets the label, because a generated name was not known when the
// object was defaulted.
func prepareNamespaceCreate(namespace *corev1.Namespace) {
	namespace.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	if !slices.Contains(namespace.Spec.Finalizers, corev1.FinalizerKubernetes) {
		namespace.Spec.Finalizers = append(namespace.Spec.Finalizers, corev1.FinalizerKubernetes)
	}
	if namespace.Name != "" {
		labelNamespace(namespace)
	}
}

// validateNamespace reports the path of the finalizer list. Only the subresource reports the index
// of the invalid finalizer.
func validateNamespace(n *corev1.Namespace) field.ErrorList {
	return validateNamespaceFinalizers(n, func(list *field.Path, _ int) *field.Path { return list })
}

func validateNamespaceFinalizers(n *corev1.Namespace, fldPath func(list *field.Path, i int) *field.Path) (errs field.ErrorList) {
	list := field.NewPath("spec", "finalizers")
	for i, f := range n.Spec.Finalizers {
		errs = append(errs, meta.ValidateFinalizerName(string(f), fldPath(list, i))...)
	}
	return errs
}

// validateNamespacePhase requires a phase that matches the deletion timestamp.
func validateNamespacePhase(namespace *corev1.Namespace) field.ErrorList {
	expected := corev1.NamespaceActive
	msg := "may only be 'Active' if `deletionTimestamp` is empty"
	if !namespace.DeletionTimestamp.IsZero() {
		expected, msg = corev1.NamespaceTerminating, "may only be 'Terminating' if `deletionTimestamp` is not empty"
	}
	if namespace.Status.Phase == expected {
		return nil
	}
	return field.ErrorList{field.Invalid(field.NewPath("status", "Phase"), namespace.Status.Phase, msg)}
}
