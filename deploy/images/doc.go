// Command images builds the container images of the suite for `make images`, and images of its
// dependencies for `make compose` without a registry.
//
// Its steps are:
//
//  1. Build a static binary of each service for each architecture, or copy it from a directory.
//  2. Write a bill of materials for each binary as CycloneDX JSON, from the information that the Go
//     toolchain records (`go version -m`).
//  3. Create a build context with the binaries and the CA bundle.
//  4. Build an image per service and architecture with the first of docker, podman and buildah that
//     works, and print its size.
//
// If the binaries exist, no step needs a network.
//
// Images are named PREFIX/SERVICE:TAG. With several architectures, the tag ends with -ARCH, and
// podman and buildah also create a manifest list PREFIX/SERVICE:TAG.
package main
