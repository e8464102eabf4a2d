package main

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
)

// image is a container image of static binaries.
type image struct {
	names      []string
	files      []imageFile
	entrypoint []string
	command    []string
}

// imageFile is an executable in an image.
type imageFile struct {
	path   string // absolute path in the image
	source string // path on this machine; empty for a link
	link   string // target of a link
}

// write writes the image in the format of docker save.
func (i image) write(w io.Writer) error {
	var layer bytes.Buffer
	if err := i.writeLayer(&layer); err != nil {
		return err
	}
	sum := sha256.Sum256(layer.Bytes())
	config, err := json.Marshal(map[string]any{
		"architecture": runtime.GOARCH, "os": "linux",
		"config": map[string]any{"Entrypoint": i.entrypoint, "Cmd": i.command, "Env": []string{"PATH=/bin:/"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []string{"sha256:" + hex.EncodeToString(sum[:])}},
	})
	if err != nil {
		return err
	}
	const configName, layerName = "config.json", "layer.tar"
	manifest, err := json.Marshal([]map[string]any{{"Config": configName, "RepoTags": i.names, "Layers": []string{layerName}}})
	if err != nil {
		return err
	}
	t := tar.NewWriter(w)
	for _, f := range []struct {
		name string
		data []byte
	}{{configName, config}, {layerName, layer.Bytes()}, {"manifest.json", manifest}} {
		if err := writeFile(t, f.name, f.data); err != nil {
			return err
		}
	}
	return t.Close()
}

func (i image) writeLayer(w io.Writer) error {
	t := tar.NewWriter(w)
	// Programs expect a folder for temporary files, and users and groups with names.
	if err := t.WriteHeader(&tar.Header{Name: "tmp/", Typeflag: tar.TypeDir, Mode: 0o1777}); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n",
		"etc/group":  "root:x:0:\nnogroup:x:65534:\n",
	} {
		if err := writeFile(t, name, []byte(text)); err != nil {
			return err
		}
	}
	for _, f := range i.files {
		name := path.Clean(f.path)[1:]
		if f.link != "" {
			if err := t.WriteHeader(&tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: f.link}); err != nil {
				return err
			}
			continue
		}
		data, err := os.ReadFile(f.source)
		if err != nil {
			return fmt.Errorf("image %v: %w", i.names, err)
		}
		if err := writeFile(t, name, data); err != nil {
			return err
		}
	}
	return t.Close()
}

func writeFile(t *tar.Writer, name string, data []byte) error {
	if err := t.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(data))}); err != nil {
		return err
	}
	_, err := t.Write(data)
	return err
}
