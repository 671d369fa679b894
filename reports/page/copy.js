// Copy buttons. Not every browser gives a page from a file the clipboard; then the text is
// selected, ready to be copied by hand.

async function copyText(button) {
  const text = button.parentElement.querySelector("pre");
  let done = "Copied";
  try {
    await navigator.clipboard.writeText(text.textContent);
  } catch {
    getSelection().selectAllChildren(text);
    if (!document.execCommand("copy")) done = "Selected";
  }
  button.textContent = done;
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
}

document.addEventListener("click", event => {
  if (event.target.matches("button.copy")) copyText(event.target);
});
