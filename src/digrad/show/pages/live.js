// A page of a run under way asks its server, again and again, how far the run is.

const SECONDS = 2;

function follow(place) {
  const ask = async () => {
    let said;
    try {
      const answer = await fetch("state", { cache: "no-store" });
      if (!answer.ok) throw new Error(answer.statusText);
      said = await answer.json();
    } catch {
      document.getElementById("line").textContent += " (nobody answers any more: `digrad watch` has ended)";
      return;
    }
    document.getElementById("line").textContent = said.line;
    document.getElementById("done").value = said.share;
    document.getElementById("rows").innerHTML = said.rows; // escaped by the server, and no script may run
    for (const table of document.querySelectorAll("#rows table")) sortable(table);
    if (said.plot && charts.length) charts[0].update(said.plot);
    else if (said.plot) location.reload(); // the first records are there
    if (said.more) setTimeout(ask, 1000 * SECONDS);
  };
  if (place.dataset.more) setTimeout(ask, 1000 * SECONDS);
}
