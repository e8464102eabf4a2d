package podspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"binnacle/services/apiserver/internal/registry/validate"
)

// Warnings returns the warnings about a new pod, with the texts of Kubernetes 1.33.
func Warnings(p *corev1.Pod) []string {
	w := &warner{spec: &p.Spec, meta: &p.ObjectMeta}
	if msgs := validate.DNSLabel(p.Name); len(msgs) > 0 {
		w.warnf(
			"metadata.name: this is used in the Pod's hostname, which can result in surprising behavior; a DNS label is recommended: %v",
			msgs,
		)
	}
	w.addAll()
	return w.texts
}

// TemplateWarnings returns the warnings about a template at a path.
func TemplateWarnings(path *field.Path, t *corev1.PodTemplateSpec) []string {
	w := &warner{path: path, spec: &t.Spec, meta: &t.ObjectMeta}
	w.addAll()
	return w.texts
}

// warner collects the warnings about a pod or template.
type warner struct {
	path  *field.Path // of the template; nil for a pod
	spec  *corev1.PodSpec
	meta  *metav1.ObjectMeta
	texts []string
}

// maxTexts is the maximum number of collected warnings. It is more than the headers of a response can
// contain.
const maxTexts = 500

// isFull reports whether further warnings are dropped.
func (w *warner) isFull() bool { return len(w.texts) >= maxTexts }

// warnf adds a warning.
func (w *warner) warnf(format string, args ...any) {
	if w.isFull() {
		return
	}
	w.texts = append(w.texts, fmt.Sprintf(format, args...))
}

func (w *warner) specPath(names ...string) *field.Path { return w.path.Child("spec", names...) }

func (w *warner) annotationPath(key string) *field.Path {
	return w.path.Child("metadata", "annotations").Key(key)
}

// addAll adds all warnings, in the order of Kubernetes.
func (w *warner) addAll() {
	w.addPlacementWarnings()
	w.addAnnotationWarnings()
	w.addVolumeWarnings()
	w.addVolumeOverlapWarnings()
	w.addDuplicateWarnings()
	w.addFractionWarnings(w.specPath("overhead"), w.spec.Overhead)
	if w.spec.SecurityContext == nil || w.spec.SecurityContext.SeccompProfile == nil {
		w.addSeccompWarning(corev1.SeccompPodAnnotationKey)
	}
	eachContainer(w.spec, func(list string, i int, c *corev1.Container) { w.addContainerWarnings(w.specPath(list).Index(i), c) })
	w.addPortWarnings()
	if s := w.spec.TerminationGracePeriodSeconds; s != nil && *s < 0 {
		w.warnf("%s: must be >= 0; negative values are invalid and will be treated as 1", w.specPath("terminationGracePeriodSeconds"))
	}
	w.addPodAffinityWarnings()
	w.addAddressWarnings()
}

// deprecatedLabels are deprecated node labels and their replacements.
var deprecatedLabels = map[string]string{
	corev1.LabelFailureDomainBetaRegion:             `deprecated since v1.17; use "topology.kubernetes.io/region" instead`,
	corev1.LabelFailureDomainBetaZone:               `deprecated since v1.17; use "topology.kubernetes.io/zone" instead`,
	corev1.LabelInstanceType:                        `deprecated since v1.17; use "node.kubernetes.io/instance-type" instead`,
	"beta.kubernetes.io/arch":                       `deprecated since v1.14; use "kubernetes.io/arch" instead`,
	"beta.kubernetes.io/os":                         `deprecated since v1.14; use "kubernetes.io/os" instead`,
	"app.kubernetes.io/created-by":                  "deprecated since v1.9",
	"scheduler.alpha.kubernetes.io/preferAvoidPods": "deprecated since v1.22; use Taints and Tolerations instead",
	"node-role.kubernetes.io/master":                `use "node-role.kubernetes.io/control-plane" instead`,
}

// DeprecatedLabel returns the deprecation message of a node label, or "" if it is not deprecated.
func DeprecatedLabel(key string) string { return deprecatedLabels[key] }

// SelectorWarnings returns the warnings about a node selector.
func SelectorWarnings(path *field.Path, selector *metav1.LabelSelector) (texts []string) {
	if selector == nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(selector.MatchLabels)) {
		if msg := deprecatedLabels[key]; msg != "" {
			texts = append(texts, fmt.Sprintf("%s: %s", path.Child("matchLabels").Child(key), msg))
		}
	}
	for i, e := range selector.MatchExpressions {
		if msg := deprecatedLabels[e.Key]; msg != "" {
			texts = append(texts, fmt.Sprintf("%s: %s", path.Child("matchExpressions").Index(i).Child("key"), msg))
		}
	}
	return texts
}

// NodeTermWarnings returns the warnings about node selector terms.
func NodeTermWarnings(path *field.Path, terms []corev1.NodeSelectorTerm) []string {
	var w warner
	for i := range terms {
		w.addNodeTermWarnings(path.Index(i), &terms[i], ignoreValues)
	}
	return w.texts
}

// addPlacementWarnings adds warnings for deprecated node labels.
func (w *warner) addPlacementWarnings() {
	for _, key := range slices.Sorted(maps.Keys(w.spec.NodeSelector)) {
		if msg := deprecatedLabels[key]; msg != "" {
			w.warnf("%s: %s", w.specPath("nodeSelector").Key(key), msg)
		}
	}
	if nodeAffinity := nodeAffinityOf(w.spec); nodeAffinity != nil {
		path := w.specPath("affinity", "nodeAffinity")
		if r := nodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution; r != nil {
			terms := path.Child("requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms")
			for i := range r.NodeSelectorTerms {
				w.addNodeTermWarnings(terms.Index(i), &r.NodeSelectorTerms[i], ignoreValues)
			}
		}
		preferred := path.Child("preferredDuringSchedulingIgnoredDuringExecution")
		for i := range nodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution {
			w.addNodeTermWarnings(
				preferred.Index(i).Child("preference"),
				&nodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution[i].Preference,
				checkValues,
			)
		}
	}
	for i := range w.spec.TopologySpreadConstraints {
		s := &w.spec.TopologySpreadConstraints[i]
		path := w.specPath("topologySpreadConstraints").Index(i)
		if msg := deprecatedLabels[s.TopologyKey]; msg != "" {
			w.warnf("%s: %s is %s", path.Child("topologyKey"), s.TopologyKey, msg)
		}
		w.addNullSelectorWarning(path, s.LabelSelector)
	}
}

// Whether addNodeTermWarnings checks label values. Those of required terms are validated instead.
const (
	checkValues  = true
	ignoreValues = false
)

// addNodeTermWarnings adds warnings for deprecated labels, and for invalid values with checkValues.
func (w *warner) addNodeTermWarnings(path *field.Path, t *corev1.NodeSelectorTerm, checkValues bool) {
	for i, e := range t.MatchExpressions {
		fldPath := path.Child("matchExpressions").Index(i)
		if msg := deprecatedLabels[e.Key]; msg != "" {
			w.warnf("%s: %s is %s", fldPath.Child("key"), e.Key, msg)
		}
		if !checkValues {
			continue
		}
		for j, v := range e.Values {
			for _, msg := range validate.LabelValue(v) {
				w.warnf("%s: %s is invalid, %s", fldPath.Child("values").Index(j), v, msg)
			}
		}
	}
}

// addNullSelectorWarning adds a warning for an affinity or constraint that matches no pod.
func (w *warner) addNullSelectorWarning(path *field.Path, s *metav1.LabelSelector) {
	if s == nil {
		w.warnf("%s: a null labelSelector results in matching no pod", path.Child("labelSelector"))
	}
}

func (w *warner) addPodAffinityWarnings() {
	affinity := w.spec.Affinity
	if affinity == nil {
		return
	}
	addForTerms := func(name string, required []corev1.PodAffinityTerm, preferred []corev1.WeightedPodAffinityTerm) {
		path := w.specPath("affinity", name)
		for i := range required {
			w.addNullSelectorWarning(path.Child("requiredDuringSchedulingIgnoredDuringExecution").Index(i), required[i].LabelSelector)
		}
		for i := range preferred {
			w.addNullSelectorWarning(
				path.Child("preferredDuringSchedulingIgnoredDuringExecution").Index(i).Child("podAffinityTerm"),
				preferred[i].PodAffinityTerm.LabelSelector,
			)
		}
	}
	if p := affinity.PodAffinity; p != nil {
		addForTerms("podAffinity", p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
	if p := affinity.PodAntiAffinity; p != nil {
		addForTerms("podAntiAffinity", p.RequiredDuringSchedulingIgnoredDuringExecution, p.PreferredDuringSchedulingIgnoredDuringExecution)
	}
}

// addAddressWarnings adds warnings for non-canonical addresses.
func (w *warner) addAddressWarnings() {
	if d := w.spec.DNSConfig; d != nil {
		for i, ip := range d.Nameservers {
			w.addIPWarning(w.specPath("dnsConfig", "nameservers").Index(i), ip)
		}
	}
	for i := range w.spec.HostAliases {
		w.addIPWarning(w.specPath("hostAliases").Index(i).Child("ip"), w.spec.HostAliases[i].IP)
	}
}

func (w *warner) addIPWarning(path *field.Path, ip string) {
	if !w.isFull() {
		w.texts = append(w.texts, validate.IPWarnings(path, ip)...)
	}
}

// StatusWarnings returns the warnings about the status of a pod.
func StatusWarnings(pod *corev1.Pod) []string {
	var w warner
	path := field.NewPath("status")
	for i := range pod.Status.PodIPs {
		w.addIPWarning(path.Child("podIPs").Index(i).Child("ip"), pod.Status.PodIPs[i].IP)
	}
	for i := range pod.Status.HostIPs {
		w.addIPWarning(path.Child("hostIPs").Index(i).Child("ip"), pod.Status.HostIPs[i].IP)
	}
	return w.texts
}

// addAnnotationWarnings adds warnings for annotations that have no effect any more.
func (w *warner) addAnnotationWarnings() {
	for _, d := range []struct{ key, msg string }{
		{"scheduler.alpha.kubernetes.io/critical-pod", `non-functional in v1.16+; use the "priorityClassName" field instead`},
		{"security.alpha.kubernetes.io/sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
		{"security.alpha.kubernetes.io/unsafe-sysctls", `non-functional in v1.11+; use the "sysctls" field instead`},
	} {
		if _, ok := w.meta.Annotations[d.key]; ok {
			w.warnf("%s: %s", w.annotationPath(d.key), d.msg)
		}
	}
}

func (w *warner) addSeccompWarning(key string) {
	if _, ok := w.meta.Annotations[key]; ok {
		w.warnf(`%s: non-functional in v1.27+; use the "seccompProfile" field instead`, w.annotationPath(key))
	}
}

// addVolumeWarnings adds warnings for deprecated types of volumes.
func (w *warner) addVolumeWarnings() {
	for i := range w.spec.Volumes {
		volume := &w.spec.Volumes[i]
		for _, d := range []struct {
			isSet     bool
			name, msg string
		}{
			{isSet: volume.PhotonPersistentDisk != nil, name: "photonPersistentDisk", msg: "deprecated in v1.11, non-functional in v1.16+"},
			{isSet: volume.GitRepo != nil, name: "gitRepo", msg: "deprecated in v1.11, and disabled by default in v1.33+"},
			{isSet: volume.ScaleIO != nil, name: "scaleIO", msg: "deprecated in v1.16, non-functional in v1.22+"},
			{isSet: volume.Flocker != nil, name: "flocker", msg: "deprecated in v1.22, non-functional in v1.25+"},
			{isSet: volume.StorageOS != nil, name: "storageOS", msg: "deprecated in v1.22, non-functional in v1.25+"},
			{isSet: volume.Quobyte != nil, name: "quobyte", msg: "deprecated in v1.22, non-functional in v1.25+"},
			{isSet: volume.Glusterfs != nil, name: "glusterfs", msg: "deprecated in v1.25, non-functional in v1.26+"},
			{isSet: volume.CephFS != nil, name: "cephfs", msg: "deprecated in v1.28, non-functional in v1.31+"},
			{isSet: volume.RBD != nil, name: "rbd", msg: "deprecated in v1.28, non-functional in v1.31+"},
		} {
			if d.isSet {
				w.warnf("%s: %s", w.specPath("volumes").Index(i).Child(d.name), d.msg)
			}
		}
		if e := volume.Ephemeral; e != nil && e.VolumeClaimTemplate != nil {
			path := w.specPath("volumes").Index(i).Child("ephemeral", "volumeClaimTemplate", "spec")
			w.texts = append(w.texts, ClaimWarnings(path, &e.VolumeClaimTemplate.Spec)...)
		}
	}
}

// ClaimWarnings returns the warnings about the spec of a claim.
func ClaimWarnings(path *field.Path, spec *corev1.PersistentVolumeClaimSpec) []string {
	var w warner
	fldPath := path.Child("resources")
	w.addFractionWarnings(fldPath.Child("requests"), spec.Resources.Requests, corev1.ResourceStorage)
	w.addFractionWarnings(fldPath.Child("limits"), spec.Resources.Limits, corev1.ResourceStorage)
	return w.texts
}

// addDuplicateWarnings adds warnings for duplicate host aliases and pull secrets.
func (w *warner) addDuplicateWarnings() {
	ips := validate.Set[string]{}
	for i, h := range w.spec.HostAliases {
		if !ips.Add(h.IP) {
			w.warnf("%s: duplicate ip %q", w.specPath("hostAliases").Index(i).Child("ip"), h.IP)
		}
	}
	names := validate.Set[string]{}
	for i, s := range w.spec.ImagePullSecrets {
		if !names.Add(s.Name) {
			w.warnf("%s: duplicate name %q", w.specPath("imagePullSecrets").Index(i).Child("name"), s.Name)
		}
	}
	for i, s := range w.spec.ImagePullSecrets {
		if s.Name == "" {
			w.warnf("%s: invalid empty name %q", w.specPath("imagePullSecrets").Index(i).Child("name"), s.Name)
		}
	}
}

// addFractionWarnings adds warnings for quantities with fractions of bytes. Without names, it checks
// memory and ephemeral storage.
func (w *warner) addFractionWarnings(path *field.Path, list corev1.ResourceList, names ...corev1.ResourceName) {
	if len(names) == 0 {
		names = []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage}
	}
	for _, name := range names {
		if q, ok := list[name]; ok && q.MilliValue()%1000 != 0 {
			w.warnf("%s: fractional byte value %q is invalid, must be an integer", path.Key(string(name)), q.String())
		}
	}
}

func (w *warner) addContainerWarnings(path *field.Path, container *corev1.Container) {
	if container.SecurityContext == nil || container.SecurityContext.SeccompProfile == nil {
		w.addSeccompWarning(corev1.SeccompContainerAnnotationKeyPrefix + container.Name)
	}
	key := corev1.DeprecatedAppArmorBetaContainerAnnotationKeyPrefix + container.Name
	if _, ok := w.meta.Annotations[key]; ok && w.path != nil && appArmorOf(w.spec, container) == nil {
		w.addAppArmorWarning(key)
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		w.addFractionWarnings(path.Child("resources", "limits"), container.Resources.Limits, name)
		w.addFractionWarnings(path.Child("resources", "requests"), container.Resources.Requests, name)
	}
	seen := validate.Set[string]{}
	for i, variable := range container.Env {
		ref := "$(" + variable.Name + ")"
		// A value that refers to the previous one does not hide it.
		if !seen.Add(variable.Name) && (variable.ValueFrom != nil || variable.Value == ref || !strings.Contains(variable.Value, ref)) {
			w.warnf("%s: hides previous definition of %q, which may be dropped when using apply", path.Child("env").Index(i), variable.Name)
		}
	}
}

// addAppArmorWarning adds a warning for an annotation without a corresponding field.
func (w *warner) addAppArmorWarning(key string) {
	w.warnf(`%s: deprecated since v1.30; use the "appArmorProfile" field instead`, w.annotationPath(key))
}
