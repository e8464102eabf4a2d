package node

// Size is how much a graph keeps.
func Size(g *Graph) int {
	return len(g.pods) + len(g.users) + len(g.volumes) + len(g.mounts) + len(g.owned)
}
