package podspec_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"binnacle/services/apiserver/internal/api/kinds/podspec"
)

// TestWarningsAreBounded checks the limit with a pod in which each pair of ports is worth a warning.
func TestWarningsAreBounded(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{{Ports: make([]corev1.ContainerPort, 50_000)}}}}
	if n := len(podspec.Warnings(pod)); n != 500 {
		t.Errorf("got %d warnings, want 500", n)
	}
}

// TestOverlappingFilesCauseWarnings checks the warnings about files of volumes with equal or nested
// paths.
func TestOverlappingFilesCauseWarnings(t *testing.T) {
	items := func(paths ...string) (items []corev1.KeyToPath) {
		for _, p := range paths {
			items = append(items, corev1.KeyToPath{Key: "k", Path: p})
		}
		return items
	}
	fields := func(path string) []corev1.DownwardAPIVolumeFile { return []corev1.DownwardAPIVolumeFile{{Path: path}} }
	bundle := "b"
	for _, test := range []struct {
		volume corev1.VolumeSource
		want   []string
	}{
		{volume: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{Items: items("a", "ab", "a-b", "b/c")}}},
		{volume: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{Items: items("a/b", "a.", "a/", "a")}}, want: []string{
			`volume "v" (ConfigMap ""): overlapping paths: "a" with "a/b"`,
			`volume "v" (ConfigMap ""): overlapping paths: "a" with "a/b"`,
			`volume "v" (ConfigMap ""): overlapping paths: "a" with "a"`,
		}},
		{volume: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "s", Items: items("a", "a/b")}}, want: []string{
			`volume "v" (Secret "s"): overlapping paths: "a/b" with "a"`,
		}},
		{volume: corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{Items: append(fields("a"), fields("a")...)}}, want: []string{
			`volume "v" (DownwardAPI): overlapping paths: "a" with "a"`,
		}},
		{volume: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
			{ClusterTrustBundle: &corev1.ClusterTrustBundleProjection{SignerName: &bundle, Path: "t/t"}},
			{DownwardAPI: &corev1.DownwardAPIProjection{Items: fields("t")}},
			{Secret: &corev1.SecretProjection{Items: items("x")}},
			{},
			{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "t"}},
		}}}, want: []string{
			`volume "v" (Projected) has no sources provided`,
			`volume "v" (Projected): overlapping paths: "t" (DownwardAPI) with "t/t" (ClusterTrustBundle "b")`,
			`volume "v" (Projected): overlapping paths: "t" (ServiceAccountToken) with "t/t" (ClusterTrustBundle "b")`,
			`volume "v" (Projected): overlapping paths: "t" (ServiceAccountToken) with "t" (DownwardAPI)`,
		}},
	} {
		pod := &corev1.Pod{Spec: corev1.PodSpec{Volumes: []corev1.Volume{{Name: "v", VolumeSource: test.volume}}}}
		pod.Name = "p"
		if got := podspec.Warnings(pod); !slices.Equal(got, test.want) {
			t.Errorf("got warnings\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
		}
	}
}

// TestManyFilesAreCompared checks that many files are compared fast: comparing all pairs would take
// seconds.
func TestManyFilesAreCompared(t *testing.T) {
	var items []corev1.KeyToPath
	for i := range 200_000 {
		items = append(items, corev1.KeyToPath{Path: fmt.Sprintf("a/%d", i)})
	}
	items = append(items, corev1.KeyToPath{Path: "a"})
	pod := &corev1.Pod{
		Spec: corev1.PodSpec{
			Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{Items: items}}}},
		},
	}
	pod.Name = "p"
	if n := len(podspec.Warnings(pod)); n != 500 {
		t.Errorf("got %d warnings, want 500", n)
	}
}
