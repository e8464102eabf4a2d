package podspec

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// file is a file of a volume and the source that specifies it. The source is empty in a volume with
// one source.
type file struct{ path, source string }

func (f file) String() string {
	if f.source == "" {
		return fmt.Sprintf("%q", f.path)
	}
	return fmt.Sprintf("%q (%s)", f.path, f.source)
}

// addVolumeOverlapWarnings adds warnings for files of a volume that coincide or whose path is a
// parent of another one.
func (w *warner) addVolumeOverlapWarnings() {
	for i := range w.spec.Volumes {
		volume := &w.spec.Volumes[i]
		if c := volume.ConfigMap; c != nil {
			w.addOverlapWarnings(fmt.Sprintf("volume %q (ConfigMap %q)", volume.Name, c.Name), appendFiles(nil, c.Items, ""))
		}
		if s := volume.Secret; s != nil {
			w.addOverlapWarnings(fmt.Sprintf("volume %q (Secret %q)", volume.Name, s.SecretName), appendFiles(nil, s.Items, ""))
		}
		if d := volume.DownwardAPI; d != nil {
			w.addOverlapWarnings(fmt.Sprintf("volume %q (DownwardAPI)", volume.Name), appendFieldFiles(nil, d.Items, ""))
		}
		if p := volume.Projected; p != nil {
			w.addOverlapWarnings(fmt.Sprintf("volume %q (Projected)", volume.Name), w.projectedFiles(volume.Name, p.Sources))
		}
	}
}

// projectedFiles returns the files of a projected volume, and adds a warning for an empty source.
func (w *warner) projectedFiles(volume string, sources []corev1.VolumeProjection) (files []file) {
	for i := range sources {
		switch volumeProjection := &sources[i]; {
		case *volumeProjection == (corev1.VolumeProjection{}):
			w.warnf("volume %q (Projected) has no sources provided", volume)
		case volumeProjection.ConfigMap != nil:
			files = appendFiles(files, volumeProjection.ConfigMap.Items, fmt.Sprintf("ConfigMap %q", volumeProjection.ConfigMap.Name))
		case volumeProjection.Secret != nil:
			files = appendFiles(files, volumeProjection.Secret.Items, fmt.Sprintf("Secret %q", volumeProjection.Secret.Name))
		case volumeProjection.DownwardAPI != nil:
			files = appendFieldFiles(files, volumeProjection.DownwardAPI.Items, "DownwardAPI")
		case volumeProjection.ServiceAccountToken != nil:
			files = append(files, file{volumeProjection.ServiceAccountToken.Path, "ServiceAccountToken"})
		case volumeProjection.ClusterTrustBundle != nil:
			name := volumeProjection.ClusterTrustBundle.Name
			if name == nil {
				name = volumeProjection.ClusterTrustBundle.SignerName
			}
			if name != nil {
				files = append(files, file{volumeProjection.ClusterTrustBundle.Path, fmt.Sprintf("ClusterTrustBundle %q", *name)})
			}
		}
	}
	return files
}

// appendFiles appends the files of a config map or secret.
func appendFiles(files []file, items []corev1.KeyToPath, source string) []file {
	for i := range items {
		files = append(files, file{items[i].Path, source})
	}
	return files
}

func appendFieldFiles(files []file, items []corev1.DownwardAPIVolumeFile, source string) []file {
	for i := range items {
		files = append(files, file{items[i].Path, source})
	}
	return files
}

// addOverlapWarnings adds a warning for each file that overlaps with earlier ones.
func (w *warner) addOverlapWarnings(volume string, files []file) {
	if len(files) < 2 {
		return
	}
	for i := range files {
		files[i].path = strings.TrimRight(files[i].path, "/")
	}
	sorted := sortFiles(files)
	for i := range files {
		for _, j := range sorted.overlapsBefore(i) {
			w.warnf("%s: overlapping paths: %s with %s", volume, files[i], files[j])
		}
		if w.isFull() {
			return
		}
	}
}

// sortedFiles orders the files of a volume by path, so that all paths below a path follow it. It
// finds overlaps without comparing every pair of files. A file is known by its index in the volume,
// and by its position in the order.
type sortedFiles struct {
	fileAt     []int // file at each position
	positionOf []int // position of each file
	parent     []int // position of the next path above the one at each position, or -1
	end        []int // position after the last path below the one at each position
}

// sortFiles returns the files in the order of their paths.
func sortFiles(files []file) *sortedFiles {
	count := len(files)
	keys := make([]string, count)
	sorted := &sortedFiles{fileAt: make([]int, count), positionOf: make([]int, count), parent: make([]int, count), end: make([]int, count)}
	for i := range files {
		keys[i] = files[i].path + "/"
		sorted.fileAt[i] = i
	}
	slices.SortStableFunc(sorted.fileAt, func(a, b int) int { return strings.Compare(keys[a], keys[b]) })

	// open is the innermost path that may contain the next one. Its parents are open as well.
	open := -1
	for position, i := range sorted.fileAt {
		sorted.positionOf[i] = position
		for open >= 0 && !strings.HasPrefix(keys[i], keys[sorted.fileAt[open]]) {
			sorted.end[open] = position
			open = sorted.parent[open]
		}
		sorted.parent[position] = open
		open = position
	}
	for ; open >= 0; open = sorted.parent[open] {
		sorted.end[open] = count
	}
	return sorted
}

// overlapsBefore returns the files with a lower index that file i overlaps with, in order.
func (s *sortedFiles) overlapsBefore(i int) (others []int) {
	add := func(j int) {
		if j < i {
			others = append(others, j)
		}
	}
	position := s.positionOf[i]
	for above := s.parent[position]; above >= 0; above = s.parent[above] {
		add(s.fileAt[above])
	}
	for below := position + 1; below < s.end[position]; below++ {
		add(s.fileAt[below])
	}
	slices.Sort(others)
	return others
}

// definedPort is the port of a container and its path.
type definedPort struct {
	path *field.Path
	port *corev1.ContainerPort
}

// portKey holds the fields of a definition that conflicts depend on.
type portKey struct {
	container int32
	protocol  corev1.Protocol
	host      int32
	ip        string
}

// definedPorts finds conflicting definitions without comparing every pair. Its maps hold indexes of
// all, in order.
type definedPorts struct {
	all             []definedPort
	byContainerPort map[portKey][]int // keys without host port and address
	byHostPort      map[portKey][]int // keys without host address
	byHostIP        map[portKey][]int // keys with all fields
}

// add records a port under all keys by which a later port may conflict with it.
func (d *definedPorts) add(p definedPort) {
	portKey, index := portKeyOf(p.port), len(d.all)
	d.all = append(d.all, p)
	d.byHostIP[portKey] = append(d.byHostIP[portKey], index)
	portKey.ip = ""
	d.byHostPort[portKey] = append(d.byHostPort[portKey], index)
	portKey.host = 0
	d.byContainerPort[portKey] = append(d.byContainerPort[portKey], index)
}

// portKeyOf returns the fields of a port that conflicts depend on.
func portKeyOf(p *corev1.ContainerPort) portKey {
	return portKey{p.ContainerPort, p.Protocol, p.HostPort, p.HostIP}
}

// conflictsWith returns the indexes of the earlier definitions that a port conflicts with. Without a
// host port or host address, a definition stands for any of them.
func (d *definedPorts) conflictsWith(containerPort *corev1.ContainerPort) []int {
	portKey := portKeyOf(containerPort)
	if containerPort.HostPort == 0 {
		portKey.ip = ""
		return d.byContainerPort[portKey]
	}
	withoutHost := portKey
	withoutHost.host = 0
	withoutHost.ip = ""
	found := slices.Clone(d.byHostPort[withoutHost])
	withoutIP := portKey
	withoutIP.ip = ""
	if containerPort.HostIP == "" {
		found = append(found, d.byHostPort[withoutIP]...)
	} else {
		found = append(found, d.byHostIP[portKey]...)
		found = append(found, d.byHostIP[withoutIP]...)
	}
	slices.Sort(found)
	return found
}

// addPortWarnings adds warnings for ports that are defined twice.
func (w *warner) addPortWarnings() {
	defined := definedPorts{byContainerPort: map[portKey][]int{}, byHostPort: map[portKey][]int{}, byHostIP: map[portKey][]int{}}
	eachContainer(w.spec, func(list string, i int, container *corev1.Container) {
		for j := range container.Ports {
			if w.isFull() {
				return
			}
			containerPort, path := &container.Ports[j], w.specPath(list).Index(i).Child("ports").Index(j)
			if containerPort.HostIP != "" && containerPort.HostPort == 0 {
				w.warnf("%s: hostIP set without hostPort: %+v", path, struct {
					Name                    string
					HostPort, ContainerPort int32
					Protocol                corev1.Protocol
					HostIP                  string
				}{containerPort.Name, containerPort.HostPort, containerPort.ContainerPort, containerPort.Protocol, containerPort.HostIP})
			}
			for _, n := range defined.conflictsWith(containerPort) {
				other := defined.all[n]
				switch o := other.port; {
				case containerPort.HostIP == o.HostIP && containerPort.HostPort == o.HostPort:
					w.warnf("%s: duplicate port definition with %s", path, other.path)
				case containerPort.HostPort == 0 || o.HostPort == 0:
					w.warnf("%s: overlapping port definition with %s", path, other.path)
				default:
					w.warnf("%s: dangerously ambiguous port definition with %s", path, other.path)
				}
			}
			defined.add(definedPort{path, containerPort})
		}
	})
}
