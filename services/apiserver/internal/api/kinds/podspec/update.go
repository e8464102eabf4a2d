package podspec

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	content "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry/validate"
	"binnacle/services/apiserver/internal/registry/valuediff"
)

// ValidateCreate validates a new pod.
func (r *Rules) ValidateCreate(fld validate.Field, pod *corev1.Pod) {
	check := r.newCheck(isPod, &pod.Spec, nil, nil)
	check.validateWholePod(fld, pod)
	spec := fld.Child("spec")
	spec.ForbidSet("ephemeralContainers", len(pod.Spec.EphemeralContainers) > 0, "cannot be set on create")
	spec.ForbidSet("nodeName", pod.Spec.NodeName != "" && len(pod.Spec.SchedulingGates) > 0,
		"cannot be set until all schedulingGates have been cleared")
	check.validateProfiles(spec, pod.Annotations)
}

// validateWholePod applies the rules for every pod.
func (c *check) validateWholePod(fld validate.Field, pod *corev1.Pod) {
	c.validateAnnotations(fld.Child("metadata", "annotations"), pod.Annotations)
	spec := fld.Child("spec")
	c.validateSpec(spec, &pod.ObjectMeta)
	if pod.Spec.ServiceAccountName == "" {
		validate.Each(spec, "volumes", pod.Spec.Volumes, func(fld validate.Field, volume *corev1.Volume) {
			if volume.Projected == nil {
				return
			}
			validate.Each(fld.Child("projected"), "sources", volume.Projected.Sources, func(fld validate.Field, s *corev1.VolumeProjection) {
				fld.ForbidSet("serviceAccountToken", s.ServiceAccountToken != nil,
					"must not be specified when serviceAccountName is not set")
			})
		})
	}
	validate.Each(spec, "containers", pod.Spec.Containers, requireTrimmedImage)
	validate.Each(spec, "initContainers", pod.Spec.InitContainers, requireTrimmedImage)
}

// validateAnnotationChanges rejects changes of annotations that define the nature of a pod.
func (c *check) validateAnnotationChanges(fld validate.Field, pod, old *corev1.Pod) {
	path := fld.Child("metadata", "annotations")
	// fixedAnnotation returns a description of an annotation that must not change, or "".
	fixedAnnotation := func(key string) string {
		switch {
		case strings.HasPrefix(key, corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix):
			return "AppArmor annotations"
		case key == mirrorAnnotation:
			return "mirror pod annotation"
		}
		return ""
	}
	for _, key := range slices.Sorted(maps.Keys(old.Annotations)) {
		if description := fixedAnnotation(key); description != "" {
			value, ok := pod.Annotations[key]
			path.Key("", key).ForbidSet("", !ok || value != old.Annotations[key], "may not remove or update "+description)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(pod.Annotations)) {
		if description := fixedAnnotation(key); description != "" {
			_, had := old.Annotations[key]
			path.Key("", key).ForbidSet("", !had, "may not add "+description)
		}
	}
	c.validateAnnotations(path, pod.Annotations)
}

// updateCheck returns a check of a changed pod.
func (r *Rules) updateCheck(p, old *corev1.Pod) *check {
	return r.newCheck(isPod, &p.Spec, &old.Spec, &old.ObjectMeta)
}

const onlyMutableFieldsDetail = "pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`," +
	"`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations)," +
	"`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)\n"

// ValidateUpdate validates a change of a pod. Only images, the deadline, tolerations and gates may
// change, and scheduling constraints while the pod has gates.
func (r *Rules) ValidateUpdate(fld validate.Field, pod, old *corev1.Pod) {
	c := r.updateCheck(pod, old)
	c.validateWholePod(fld, pod)
	c.validateAnnotationChanges(fld, pod, old)
	spec := fld.Child("spec")
	if !validateImages(spec, "containers", pod.Spec.Containers, old.Spec.Containers) ||
		!validateImages(spec, "initContainers", pod.Spec.InitContainers, old.Spec.InitContainers) ||
		!requireShorterDeadline(spec, pod.Spec.ActiveDeadlineSeconds, old.Spec.ActiveDeadlineSeconds) {
		return
	}
	forbidRemovedTolerations(spec, pod.Spec.Tolerations, old.Spec.Tolerations)
	forbidAddedGates(spec, pod.Spec.SchedulingGates, old.Spec.SchedulingGates)
	if validate.SemanticEqual(&pod.Spec, &old.Spec) {
		return
	}

	// The spec must be equal except for the fields that may change. Reset these in a copy.
	rest := pod.Spec.DeepCopy()
	for i := range rest.Containers {
		rest.Containers[i].Image = old.Spec.Containers[i].Image
	}
	for i := range rest.InitContainers {
		rest.InitContainers[i].Image = old.Spec.InitContainers[i].Image
	}
	rest.ActiveDeadlineSeconds = old.Spec.ActiveDeadlineSeconds
	rest.SchedulingGates = old.Spec.SchedulingGates
	rest.Tolerations = old.Spec.Tolerations
	grace, was := rest.TerminationGracePeriodSeconds, old.Spec.TerminationGracePeriodSeconds
	if was != nil && *was < 0 && grace != nil && *grace == 1 {
		rest.TerminationGracePeriodSeconds = was
	}
	if len(old.Spec.SchedulingGates) > 0 {
		validateGatedPods(spec, rest, &old.Spec)
	}
	if !validate.SemanticEqual(rest, &old.Spec) {
		fld.Forbidden("spec", onlyMutableFieldsDetail+valuediff.Text(old.Spec, *rest))
	}
}

// validateImages requires the same number of containers, each with an image. It reports whether the
// number is the same.
func validateImages(fld validate.Field, name string, now, before []corev1.Container) bool {
	if len(now) != len(before) {
		fld.Forbidden(name, "pod updates may not add or remove containers")
		return false
	}
	validate.Each(fld, name, now, func(fld validate.Field, ctr *corev1.Container) {
		fld.RequireSet("image", ctr.Image != "")
		requireTrimmedImage(fld, ctr)
	})
	return true
}

// requireShorterDeadline allows setting or shortening the deadline. It reports whether validation of
// the other fields should continue.
func requireShorterDeadline(fld validate.Field, now, before *int64) bool {
	const name = "activeDeadlineSeconds"
	switch {
	case now == nil && before != nil:
		fld.Invalid(name, now, "must not update from a positive integer to nil value")
	case now == nil:
	case *now < 0 || *now > math.MaxInt32:
		fld.Invalid(name, *now, content.InclusiveRangeError(0, math.MaxInt32))
		return false
	case before != nil && *before < *now:
		fld.Invalid(name, *now, "must be less than or equal to previous value")
		return false
	}
	return true
}

// forbidRemovedTolerations allows adding tolerations, and changing their times.
func forbidRemovedTolerations(fld validate.Field, now, before []corev1.Toleration) {
	untimed := func(t *corev1.Toleration) corev1.Toleration {
		copied := *t
		copied.TolerationSeconds = nil
		return copied
	}
	kept := validate.KeySet(now, untimed)
	for i := range before {
		if !kept.Has(untimed(&before[i])) {
			fld.Forbidden("tolerations", "existing toleration can not be modified except its tolerationSeconds")
			return
		}
	}
	validate.Each(fld, "tolerations", now, TolerationRules)
}

func forbidAddedGates(fld validate.Field, now, before []corev1.PodSchedulingGate) {
	had := validate.KeySet(before, func(g *corev1.PodSchedulingGate) string { return g.Name })
	validate.Each(fld, "schedulingGates", now, func(fld validate.Field, g *corev1.PodSchedulingGate) {
		fld.ForbidSet("name", !had.Has(g.Name), fmt.Sprintf("only deletion is allowed, but found new scheduling gate '%s'", g.Name))
	})
}

// validateGatedPods allows narrowing the nodes of a pod with scheduling gates. It resets in rest
// the fields that may change.
func validateGatedPods(fld validate.Field, rest, old *corev1.PodSpec) {
	if !validate.SemanticEqual(rest.NodeSelector, old.NodeSelector) {
		for key, value := range old.NodeSelector {
			if now, ok := rest.NodeSelector[key]; !ok || now != value {
				fld.Invalid("nodeSelector", rest.NodeSelector,
					"only additions to spec.nodeSelector are allowed (no mutations or deletions)")
				break
			}
		}
		rest.NodeSelector = old.NodeSelector
	}
	now, before := nodeAffinityOf(rest), nodeAffinityOf(old)
	if validate.SemanticEqual(now, before) {
		return
	}
	requireNarrowedNodeAffinity(fld.Child("affinity", "nodeAffinity"), now, before)
	switch affinity := rest.Affinity; {
	case affinity == nil:
		rest.Affinity = &corev1.Affinity{NodeAffinity: before}
	case old.Affinity == nil && affinity.PodAffinity == nil && affinity.PodAntiAffinity == nil:
		rest.Affinity = nil
	default:
		affinity.NodeAffinity = before
	}
}

func nodeAffinityOf(podSpec *corev1.PodSpec) *corev1.NodeAffinity {
	if podSpec.Affinity == nil {
		return nil
	}
	return podSpec.Affinity.NodeAffinity
}

// requireNarrowedNodeAffinity requires the existing terms, each with its existing requirements and
// optionally more.
func requireNarrowedNodeAffinity(fld validate.Field, now, before *corev1.NodeAffinity) {
	if before == nil || before.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return
	}
	fld = fld.Child("requiredDuringSchedulingIgnoredDuringExecution")
	old := before.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	var terms []corev1.NodeSelectorTerm
	if now != nil && now.RequiredDuringSchedulingIgnoredDuringExecution != nil {
		terms = now.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	}
	if len(old) > 0 && len(old) != len(terms) {
		fld.Invalid("nodeSelectorTerms", terms, "no additions/deletions to non-empty NodeSelectorTerms list are allowed")
		return
	}
	for i := range old {
		if !isTermNarrowed(&terms[i], &old[i]) {
			fld.Index("nodeSelectorTerms", i).Invalid("", terms[i],
				"only additions are allowed (no mutations or deletions)")
		}
	}
}

// isTermNarrowed reports whether a term only got more requirements.
func isTermNarrowed(now, before *corev1.NodeSelectorTerm) bool {
	hasPrefix := func(now, before []corev1.NodeSelectorRequirement) bool {
		return len(now) >= len(before) && validate.SemanticEqual(now[:len(before)], before)
	}
	if len(before.MatchExpressions)+len(before.MatchFields) == 0 {
		// A term without requirements matches nothing, so it must not get any.
		return len(now.MatchExpressions)+len(now.MatchFields) == 0
	}
	return hasPrefix(now.MatchExpressions, before.MatchExpressions) && hasPrefix(now.MatchFields, before.MatchFields)
}

// ValidateEphemeralContainers validates a change of a pod's ephemeral containers, which can only be
// added.
func (r *Rules) ValidateEphemeralContainers(fld validate.Field, pod, old *corev1.Pod) {
	if _, mirror := old.Annotations[mirrorAnnotation]; mirror {
		fld.Add(field.Forbidden(field.NewPath(""), "static pods do not support ephemeral containers"))
		return
	}
	c := r.updateCheck(pod, old)
	c.validateWholePod(fld, pod)
	c.validateAnnotationChanges(fld, pod, old)
	const name = "ephemeralContainers"
	now := validate.KeyIndex(pod.Spec.EphemeralContainers, func(e *corev1.EphemeralContainer) string { return e.Name })
	for i := range old.Spec.EphemeralContainers {
		was := &old.Spec.EphemeralContainers[i]
		j, exists := now[was.Name]
		switch {
		case !exists:
			fld.Child("spec").Forbidden(name, fmt.Sprintf("existing ephemeral containers %q may not be removed\n", was.Name))
		case !validate.SemanticEqual(*was, pod.Spec.EphemeralContainers[j]):
			fld.Child("spec").Forbidden(name, fmt.Sprintf("existing ephemeral containers %q may not be changed\n%v",
				was.Name, validate.InPackage(valuediff.Text(*was, pod.Spec.EphemeralContainers[j]), "core")))
		}
	}
}

// MergeMatchKeys adds requirements to the selectors of a new pod, from its own labels with the keys
// in matchLabelKeys and mismatchLabelKeys (KEP-3633).
func MergeMatchKeys(pod *corev1.Pod) {
	eachPodAffinityTerm(pod.Spec.Affinity, func(term *corev1.PodAffinityTerm) {
		if term.LabelSelector == nil {
			return
		}
		add := func(keys []string, op metav1.LabelSelectorOperator) {
			for _, key := range keys {
				if value, ok := pod.Labels[key]; ok {
					term.LabelSelector.MatchExpressions = append(term.LabelSelector.MatchExpressions,
						metav1.LabelSelectorRequirement{Key: key, Operator: op, Values: []string{value}})
				}
			}
		}
		add(term.MatchLabelKeys, metav1.LabelSelectorOpIn)
		add(term.MismatchLabelKeys, metav1.LabelSelectorOpNotIn)
	})
}
