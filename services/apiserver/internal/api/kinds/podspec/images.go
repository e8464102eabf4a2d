package podspec

import (
	"regexp"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// maxImagePath is the maximum length of a name without registry, tag and digest.
const maxImagePath = 255

// latestTag is the tag of images that may change.
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

var hostPattern = regexp.MustCompile("^" + registryPattern + "$")

// hashPattern matches the hash of an image, which is not a name.
var hashPattern = regexp.MustCompile(`^[a-f0-9]{64}$`)

// fillPullPolicy sets a missing pull policy. It parses the image name only in that case.
func fillPullPolicy(p *corev1.PullPolicy, image string) {
	if *p == "" {
		*p = pullPolicy(image)
	}
}

// pullPolicy returns Always for an image that may change under its name. Other validation rejects
// invalid names.
func pullPolicy(image string) corev1.PullPolicy {
	m := imagePattern.FindStringSubmatch(image)
	if m == nil || len(imagePath(m[1])) > maxImagePath || hashPattern.MatchString(image) {
		return corev1.PullIfNotPresent
	}
	tag, digest := m[2], m[3]
	if digest != "" && !digestPattern.MatchString(digest) {
		return corev1.PullIfNotPresent
	}
	if tag == latestTag || tag == "" && digest == "" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// digestPattern matches the known digests.
var digestPattern = regexp.MustCompile(`^@(?:sha256:[a-f0-9]{64}|sha384:[a-f0-9]{96}|sha512:[a-f0-9]{128})$`)

// imagePath returns a name without its registry. As in Docker, a name without a path is completed
// by "library/".
func imagePath(name string) string {
	path, docker := name, true
	if host, rest, ok := strings.Cut(name, "/"); ok && hostPattern.MatchString(host) && (strings.ContainsAny(host, ".:") || host == "localhost" || strings.ToLower(host) != host) {
		path, docker = rest, host == "docker.io" || host == "index.docker.io"
	}
	if docker && !strings.Contains(path, "/") {
		return "library/" + path
	}
	return path
}
