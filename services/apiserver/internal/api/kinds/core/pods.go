package core

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"binnacle/libs/podqos"
	"binnacle/libs/semantic"
	"binnacle/services/apiserver/internal/api/kinds/podspec"
	"binnacle/services/apiserver/internal/api/kinds/podspec/poddefaults"
	"binnacle/services/apiserver/internal/registry"
	"binnacle/services/apiserver/internal/registry/declare"
)

// defaultGracePeriod is the default grace period of a deletion in seconds.
const defaultGracePeriod = 30

// pods declares the namespaced kind Pod.
func pods(rules *podspec.Rules) *registry.Kind {
	return declare.Kind[corev1.Pod, corev1.PodList](&registry.Kind{
		Names: registry.Names{
			Version: version, Resource: "pods", Kind: "Pod",
			ShortNames: []string{"po"}, Categories: []string{"all"}, Namespaced: true,
		},
		Parts: declare.SpecStatusAccessors(func(p *corev1.Pod) (*corev1.PodSpec, *corev1.PodStatus) { return &p.Spec, &p.Status }),
		Default: declare.Adapt(func(p *corev1.Pod) {
			poddefaults.Pod(p)
			rules.Default(&p.Spec)
		}),
		DefaultedRules: poddefaults.PodDefaultedRules,
		Create: registry.Create{
			Prepare: declare.Adapt(func(p *corev1.Pod) {
				rules.Drop(&p.Spec, nil)
				preparePodCreate(p)
			}),
			Validate:      declare.AdaptValidation(rules.ValidateCreate),
			Warnings:      declare.AdaptResult(podspec.Warnings),
			EarlyWarnings: declare.AdaptResult(podspec.AppArmorWarnings),
		},
		Update: registry.Update{
			Order:      registry.Order{registry.MetaUpdateRules, registry.MetaRules, registry.UpdateRules},
			Generation: true,
			Prepare:    declare.AdaptUpdate(func(p, old *corev1.Pod) { rules.Drop(&p.Spec, &old.Spec) }),
			Validate:   declare.AdaptUpdateValidation(rules.ValidateUpdate),
			// Controllers and kubelets update pods, so warnings would not be read.
			Warnings: declare.AdaptUpdateResult(func(_, _ *corev1.Pod) []string { return nil }),
		},
		Delete: registry.Delete{ReturnObject: true, GracePeriod: podGracePeriod},
		Presentation: registry.Presentation{
			Selectable: []registry.SelectableField{
				{Label: "spec.nodeName", Index: true, Aliases: []string{"spec.host"}},
				{Label: "spec.restartPolicy"},
				{Label: "spec.schedulerName"},
				{Label: "spec.serviceAccountName"},
				{Label: "spec.hostNetwork"},
				{Label: "status.phase"},
				{Label: "status.podIP"},
				// A valid field label that never matches a value: the path is always empty.
				{Label: "status.podIPs", Path: "metadata.selfLink"},
				{Label: "status.nominatedNodeName"},
			},
			Columns:           podColumns(),
			RowConditions:     declare.AdaptResult(podRowConditions),
			ColumnFields:      podReads(),
			ClearColumnFields: func(o registry.Object) { reusePod(o.(*corev1.Pod)) },
		},
		Subresources: podSubresources(rules),
	})
}

// podSubresources returns the subresources that the server's feature gates allow.
func podSubresources(rules *podspec.Rules) []registry.Subresource {
	all := allPodSubresources(rules)
	if rules.CanResize() {
		return all
	}
	return slices.DeleteFunc(all, func(s registry.Subresource) bool { return s.Name == "resize" })
}

// allPodSubresources returns all subresources of pods.
func allPodSubresources(rules *podspec.Rules) []registry.Subresource {
	return []registry.Subresource{
		{
			Name:    "attach",
			Connect: true,
			Verbs:   connectVerbs(),
			GVK:     coreKind("PodAttachOptions"),
			New:     declare.New[corev1.PodAttachOptions],
		},
		{
			Name:  "binding",
			Verbs: []string{"create"},
			GVK:   coreKind("Binding"),
			New:   declare.New[corev1.Binding],
		},
		declare.WithoutTable(
			declare.ValidatedView("ephemeralcontainers", "Pod", prepareEphemeralContainers, rules.ValidateEphemeralContainers),
		),
		{
			Name:  "eviction",
			Verbs: []string{"create"},
			GVK:   policyv1.SchemeGroupVersion.WithKind("Eviction"),
			New:   declare.New[policyv1.Eviction],
		},
		{
			Name:    "exec",
			Connect: true,
			Verbs:   connectVerbs(),
			GVK:     coreKind("PodExecOptions"),
			New:     declare.New[corev1.PodExecOptions],
		},
		{Name: "log", Connect: true, GVK: coreKind("Pod"), Verbs: []string{"get"}},
		{
			Name:    "portforward",
			Connect: true,
			Verbs:   connectVerbs(),
			GVK:     coreKind("PodPortForwardOptions"),
			New:     declare.New[corev1.PodPortForwardOptions],
		},
		{
			Name:          "proxy",
			Connect:       true,
			AllowSubpaths: true,
			Verbs:         proxyVerbs(),
			GVK:           coreKind("PodProxyOptions"),
			New:           declare.New[corev1.PodProxyOptions],
		},
		declare.WithoutTable(declare.ValidatedView("resize", "Pod", prepareResize, rules.ValidateResize)),
		declare.WithWarnings(declare.WithResetFields(declare.ValidatedView("status", "Pod", func(p, old *corev1.Pod) {
			preparePodStatus(p, old)
			rules.DropStatus(p, old)
		}, rules.ValidateStatus), "spec", "metadata.deletionTimestamp", "metadata.ownerReferences"), podspec.StatusWarnings),
	}
}

// podGracePeriod returns the grace period of a deletion in seconds: 0 for a pod that is not
// running, or else the requested period, that of the pod or the default. It returns 1 for a
// negative period.
func podGracePeriod(o registry.Object, requested *int64) int64 {
	pod := o.(*corev1.Pod)
	if pod.Spec.NodeName == "" || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return 0
	}
	period := int64(defaultGracePeriod)
	switch {
	case requested != nil:
		period = *requested
	case pod.Spec.TerminationGracePeriodSeconds != nil:
		period = *pod.Spec.TerminationGracePeriodSeconds
	}
	if period < 0 {
		return 1
	}
	return period
}

// preparePodCreate sets the initial status and completes selectors and AppArmor profiles.
func preparePodCreate(pod *corev1.Pod) {
	pod.Status = corev1.PodStatus{Phase: corev1.PodPending, QOSClass: podqos.Class(&pod.Spec)}
	if len(pod.Spec.SchedulingGates) > 0 {
		pod.Status.Conditions = []corev1.PodCondition{{
			Type:    corev1.PodScheduled,
			Status:  corev1.ConditionFalse,
			Reason:  corev1.PodReasonSchedulingGated,
			Message: "Scheduling is blocked due to non-empty scheduling gates",

			LastTransitionTime: pod.CreationTimestamp,
		}}
	}
	podspec.MergeMatchKeys(pod)
	podspec.SyncAppArmor(pod)
}

// preparePodStatus preserves fields that old kubelets drop or change with the status.
func preparePodStatus(pod, old *corev1.Pod) {
	pod.Spec = old.Spec
	pod.DeletionTimestamp = old.DeletionTimestamp
	pod.OwnerReferences = old.OwnerReferences
	if pod.Status.QOSClass == "" {
		pod.Status.QOSClass = old.Status.QOSClass
	}
	keepObservedGeneration(&pod.Status, &old.Status)
}

// keepObservedGeneration preserves the observed generations, because older kubelets do not know the
// fields. The conditions of a type, which may be several, correspond by their order.
func keepObservedGeneration(status, old *corev1.PodStatus) {
	if status.ObservedGeneration == 0 {
		status.ObservedGeneration = old.ObservedGeneration
	}
	oldGenerations := map[corev1.PodConditionType][]int64{}
	for i := range old.Conditions {
		podCondition := &old.Conditions[i]
		oldGenerations[podCondition.Type] = append(oldGenerations[podCondition.Type], podCondition.ObservedGeneration)
	}
	for i := range status.Conditions {
		podCondition := &status.Conditions[i]
		remaining := oldGenerations[podCondition.Type]
		if len(remaining) == 0 {
			continue
		}
		if podCondition.ObservedGeneration == 0 {
			podCondition.ObservedGeneration = remaining[0]
		}
		oldGenerations[podCondition.Type] = remaining[1:]
	}
}

// raiseGeneration increments the generation after a change of the spec through a subresource.
func raiseGeneration(p, old *corev1.Pod) {
	p.Generation = old.Generation
	if !semantic.Equal(&p.Spec, &old.Spec) {
		p.Generation++
	}
}

// prepareEphemeralContainers allows changes of the ephemeral containers and a part of the metadata
// only.
func prepareEphemeralContainers(pod, old *corev1.Pod) {
	desired := pod.Spec.EphemeralContainers
	pod.Spec = old.Spec
	pod.Status = old.Status
	pod.Spec.EphemeralContainers = desired
	metav1.ResetObjectMetaForStatus(pod, old)
	raiseGeneration(pod, old)
}

// prepareResize allows changes of the containers' resources only. It does not change a pod with
// other containers than before, which validation rejects.
func prepareResize(pod, old *corev1.Pod) {
	if !haveSameContainers(pod.Spec.Containers, old.Spec.Containers) ||
		!haveSameContainers(pod.Spec.InitContainers, old.Spec.InitContainers) {
		return
	}
	containers := takeResources(pod.Spec.Containers, old.Spec.Containers)
	initContainers := takeResources(pod.Spec.InitContainers, old.Spec.InitContainers)
	pod.Spec = old.Spec
	pod.Status = old.Status
	pod.Spec.Containers = containers
	pod.Spec.InitContainers = initContainers
	metav1.ResetObjectMetaForStatus(pod, old)
	raiseGeneration(pod, old)
}

func haveSameContainers(a, b []corev1.Container) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Name != b[i].Name {
			return false
		}
	}
	return true
}

// takeResources returns old with the resources of desired. Both have the same names.
func takeResources(desired, old []corev1.Container) []corev1.Container {
	if len(old) == 0 {
		return old
	}
	out := append([]corev1.Container(nil), old...)
	for i := range out {
		out[i].Resources = desired[i].Resources
		out[i].ResizePolicy = desired[i].ResizePolicy
	}
	return out
}
