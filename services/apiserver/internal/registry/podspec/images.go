package podspec

import (
	"regexp"

	corev1 "k8s.io/api/core/v1"
)

// maxImageName is the length of the longest name without tag and digest.
const maxImageName = 255

// latestTag is the one that moves.
const latestTag = "latest"

// imagePattern matches registry, path, tag and digest of an image.
var imagePattern = regexp.MustCompile(`^((?:` + registryPattern + `/)?` + componentPattern + `(?:/` + componentPattern + `)*)` +
	`(?::(\w[\w.-]{0,127}))?` +
	`(@[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,})?$`)

const (
	labelPattern     = `(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])`
	registryPattern  = `(?:` + labelPattern + `(?:\.` + labelPattern + `)*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?`
	componentPattern = `[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*`
)

// hashPattern matches what is the hash of an image and not a name.
var hashPattern = regexp.MustCompile(`^[a-f0-9]{64}$`)

// pullPolicy pulls an image again and again that may have changed under its
// name. A name that cannot be read is left for others to refuse.
func pullPolicy(image string) corev1.PullPolicy {
	m := imagePattern.FindStringSubmatch(image)
	if m == nil || len(m[1]) > maxImageName || hashPattern.MatchString(image) {
		return corev1.PullIfNotPresent
	}
	tag, digest := m[2], m[3]
	if tag == latestTag || tag == "" && digest == "" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}
